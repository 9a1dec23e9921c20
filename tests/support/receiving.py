"""A receiver of webhooks: a real server that answers as configured and records the requests."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Received(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    at: float


class Reply(NamedTuple):
    """An answer; *drip* seconds pass before each of its bytes, and before the first line if *late*."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}
    late: float = 0.0
    drip: float = 0.0


class Receiver:
    """A server that answers with what *reply* returns for a path."""

    def __init__(self, host: str, port: int, reply: Callable[[str], Reply]) -> None:
        self.received: list[Received] = []
        self.at_once = self.most_at_once = 0
        self.reply = reply
        self._lock = threading.Lock()
        self._open = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    receiver._answer(self)

            def log_message(self, *about: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, *about: Any) -> None: ...

        self._server = Server((host, port), Handler)
        self.host, self.port = host, self._server.server_port
        self.url = f"http://{host}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._open.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        with self._lock:
            self.received.append(
                Received(request.path, dict(request.headers), body, request.client_address[1], time.monotonic())
            )
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            reply = self.reply(request.path)
            self._open.wait(reply.late)
            if reply.status == 0:  # The connection closes without an answer.
                request.connection.shutdown(socket.SHUT_RDWR)
                request.close_connection = True
                return
            request.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                request.send_header(name, value)
            request.end_headers()
            pieces = [reply.body] if not reply.drip else [bytes([byte]) for byte in reply.body]
            for piece in pieces:
                self._open.wait(reply.drip)
                request.wfile.write(piece)
        finally:
            with self._lock:
                self.at_once -= 1


@contextlib.contextmanager
def receiving_inside_and_outside() -> Iterator[tuple[Receiver, Receiver]]:
    """Yield receivers on 127.0.0.1 and 127.0.0.2 with the same port, as two addresses of one host name."""
    with contextlib.ExitStack() as open_ones:
        while True:
            inside = open_ones.enter_context(receiving())
            try:
                outside = open_ones.enter_context(receiving("127.0.0.2", port=inside.port))
            except OSError:
                continue  # Another process uses that port there.
            yield inside, outside
            return


@contextlib.contextmanager
def receiving(
    host: str = "127.0.0.1", *, port: int = 0, reply: Callable[[str], Reply] = lambda path: Reply()
) -> Iterator[Receiver]:
    """Run a `Receiver` until the end of the block."""
    receiver = Receiver(host, port, reply)
    try:
        yield receiver
    finally:
        receiver.close()
