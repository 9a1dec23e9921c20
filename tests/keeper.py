"""Outlives the owner of a cluster, to end what it left: ``python keeper.py BINARIES VERSION FOLDER``.

A test process that is killed cannot stop its server. This one waits for the end of the folder's owner, stops the
server and removes the folder.
"""

import shutil
import sys
from pathlib import Path

from clusters import Cluster
from owned_folder import wait_for_owner
from postgres_binaries import Binaries

if __name__ == "__main__":
    binaries, version, folder = sys.argv[1:]
    (Path(folder) / "kept").touch()
    wait_for_owner(Path(folder))
    Cluster(Binaries(Path(binaries), version), Path(folder)).stop("immediate")
    shutil.rmtree(folder)
