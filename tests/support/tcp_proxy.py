"""A proxy between a kit and its server that can fall silent: it forwards nothing and closes nothing."""

import select
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Proxy:
    """A proxy that forwards connections to *port*, counts them, and can drop or silence the open ones."""

    def __init__(self, port: int) -> None:
        self.accepted = 0
        self._server = port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._silent: list[socket.socket] = []
        self._doomed: bytes | None = None
        self._holding = False
        self._breaking: set[socket.socket] = set()
        self._mutex = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._thread.join()
        for each in [self._door, *self._peers, *self._silent]:
            each.close()

    def fall_silent(self) -> int:
        """Stop forwarding on the open connections, and return how many there are.  New ones are served."""
        with self._mutex:
            silent = len(self._peers) // 2
            self._silent += self._peers
            self._peers.clear()
            return silent

    def hold(self) -> None:
        """Stop forwarding on the open connections, and answer none of the new ones, until `serve`."""
        self._holding = True
        self.fall_silent()

    def serve(self) -> None:
        """Serve new connections; those that were held stay silent."""
        self._holding = False

    def break_at(self, sent: bytes) -> None:
        """Break the connection on which a client sends these bytes, when the server answers it."""
        self._doomed = sent

    def _run(self) -> None:
        while not self._ended:
            with self._mutex:
                watched = [self._door, *self._peers]
            for ready in select.select(watched, [], [], 0.02)[0]:
                with self._mutex:
                    if ready is self._door:
                        self._accept()
                    elif ready in self._peers:
                        self._forward(ready)

    def _accept(self) -> None:
        client = self._door.accept()[0]
        self.accepted += 1
        if self._holding:
            self._silent.append(client)
            return
        server = socket.create_connection(("127.0.0.1", self._server))
        self._peers |= {client: server, server: client}

    def _forward(self, source: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = source.recv(65536)
            if self._doomed is not None and self._doomed in data:
                self._doomed = None
                self._breaking.add(self._peers[source])
            if source in self._breaking:
                data = b""
            self._peers[source].sendall(data)
        if not data:
            for each in (source, self._peers[source]):
                del self._peers[each]
                each.close()
