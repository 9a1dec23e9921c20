"""The service as a process: its address, and its end."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import Mock

import httpx
import psutil
import pytest
import uvicorn
from services import Started
from starlette.responses import Response
from uvicorn.server import ServerState

import eventkit
from eventkit.conformance import proves
from eventkit.http.server import MAX_HEAD, _Bounded


def test_it_answers_until_it_is_stopped(started: Started) -> None:
    """It prints its address, answers there, and ends with exit code 0."""
    assert httpx.get(f"{started.address}/healthz").json() == {"status": "ok"}
    assert started.stop() == 0
    assert "Traceback" not in started.log.read_text()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_keys_it_listens_on_this_machine_alone(host: str, tmp_path: Path) -> None:
    """Another address than loopback is refused, in a line with the remedy."""
    url = f"sqlite:///{tmp_path / 'alone.db'}"
    eventkit.connect(url).close()
    command = [sys.executable, "-m", "eventkit.cli", "serve", "--url", url, "--host", host, "--port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "eventkit key add" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def conversation(address: str, parts: Iterable[bytes]) -> bytes:
    """Return everything that the service answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=20) as connection:
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                answer += part
        return answer


@proves("E6")
@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: 1\r\n" * 100 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * 66_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + (b"X-Sum: " + b"x" * 7_000 + b"\r\n") * 10 + b"\r\n",
        b"GET /healthz?" + b"x" * 66_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /queues HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: "
        + b"x" * 400_000,
    ],
)
def test_headers_are_limited(shared: Started, head: bytes) -> None:
    """The limits are 100 and 64 KiB with the first line: beyond that the answer is 431 and the connection closes."""
    answer = conversation(shared.address, [head])
    if not head.startswith(b"POST"):  # Trailers follow the start of the request, whose answer may be under way.
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "headers_too_large"
    most = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + b"X-Many: 1\r\n" * 98 + b"\r\n"
    assert conversation(shared.address, [most]).startswith(b"HTTP/1.1 200 ")
    assert b'"malformed"' in conversation(shared.address, [b"no HTTP\r\n\r\n"])


@proves("E6")
def test_headers_without_end_do_not_delay_others(shared: Started) -> None:
    """A client that sends a hundred megabytes of headers is refused while it sends, and others are served."""
    begun = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: "
    with ThreadPoolExecutor() as pool:
        flooding = pool.submit(conversation, shared.address, chain([begun], repeat(b"x" * 2**20, 100)))
        while not flooding.done():
            assert httpx.get(f"{shared.address}/healthz", timeout=5).json() == {"status": "ok"}
        assert flooding.result().startswith(b"HTTP/1.1 431 ")
    assert psutil.Process(shared.process.pid).memory_info().rss < 300 * 2**20


@proves("E6")
def test_other_bytes_are_not_limited_as_headers() -> None:
    """A head may come in one read with more than 64 KiB of its body, and a value after 64 KiB of spaces."""

    async def refused() -> bool:
        config = uvicorn.Config(Response(), log_config=None)
        config.load()
        protocol = type("Bounded", (_Bounded,), {"max_receive": 9.0})(config, ServerState(), {})
        protocol.connection_made(Mock(get_extra_info=lambda name: None))
        body = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n" + b"1" * 70_000
        for read in (body, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Spaces:", b" " * MAX_HEAD, b"1\r\n\r\n"):
            protocol.data_received(read)
        return protocol._refused

    assert not asyncio.run(refused())
