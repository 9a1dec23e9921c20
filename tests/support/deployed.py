"""Programs of the pages, run as a deployment runs them: in a folder and a process of their own."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from test_docs import blocks
from working import PATIENCE, until


def programs(page: Path, folder: Path) -> None:
    """Write the page's programs: the Python blocks whose first line is a file's name."""
    for _, block in blocks(page, "python"):
        if name := re.match(r"# (\w+\.py)\n", block):
            (folder / name[1]).write_text(block, "utf-8")


@contextlib.contextmanager
def worker(
    *command: str, folder: Path, begun: Callable[[str], bool] = lambda log: "has begun" in log, **environment: str
) -> Iterator[None]:
    """Run a worker until its log says that it has started; stop it at the end, which must succeed."""
    log = folder / "worker.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, stderr=stderr)
    try:

        def there() -> bool:
            text = log.read_text("utf-8")
            assert process.poll() is None, text
            return begun(text)

        until(there)
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text("utf-8")
    finally:
        process.kill()
        process.wait()
