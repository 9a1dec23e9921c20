"""An S3 server of the test's own, in a process that ends with the test."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from clusters import free_port

KEY, SECRET = "AKIATESTKEY", "t0psecret/with+signs"
"""Credentials, which the server does not check."""


@contextmanager
def object_store(bucket: str) -> Iterator[str]:
    """Yield the server's address, with an empty bucket."""
    port = free_port()
    environment = os.environ | {"MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(64 * 2**20)}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{bucket}", method="PUT")
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError), urllib.request.urlopen(request) as answer:
                answer.read()
                break
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
