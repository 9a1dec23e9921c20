"""End a cluster after its owner: ``python keeper.py BINARIES VERSION FOLDER``.

A test process that is killed cannot stop its server. This one waits for the end of the folder's owner, stops the
server and removes the folder.
"""

import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from clusters import Cluster, ClusterError
from owned_folder import wait_for_owner
from postgres_binaries import Binaries

if __name__ == "__main__":
    binaries, version, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    cluster = Cluster(Binaries(Path(binaries), version), folder)
    (folder / "kept").touch()
    wait_for_owner(folder)
    while folder.exists():
        # The owner may have ended while initdb or the server was still starting.
        with suppress(ClusterError, FileNotFoundError):
            cluster.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)
