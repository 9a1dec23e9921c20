"""`Outbox`: messages that leave the database once the transaction that wrote them has committed."""

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from . import arguments
from .codec import Codec, encode_headers
from .delivery import MESSAGE_ID, PREFIX, Round, Tally
from .errors import Closed
from .operations.claim import Claim, fresh_token
from .operations.outbox import AddMessage, ClaimInOrder, Lookout, OpenOutbox, ReadOutbox
from .records import Message
from .retry import Exponential, encode
from .rota import Rota
from .telemetry import with_trace

_ATTEMPTS = 5
_RETRY = encode(Exponential(base=5.0, jitter=0.0))


class Outbox:
    """Behaves as `eventkit.protocols.Outbox` and `AsyncOutbox` say."""

    def __init__(
        self,
        execute: Callable[..., Any],
        deliveries: Any,
        queue: Any,
        codec: Codec,
        deliver: Callable[[Message[Any]], Any] | None,
        ordered: bool,
        tally: Tally,
    ) -> None:
        self.name = queue.name.removeprefix(PREFIX)
        self.queue = queue
        self._execute = execute
        self._deliveries = deliveries
        self._codec = codec
        self._deliver = deliver
        self._ordered = ordered
        self._tally = tally
        self._stopped = threading.Event()
        if deliver is not None and not callable(deliver):
            raise TypeError(f"deliver is called with each message, and {type(deliver).__name__} cannot be")
        if inspect.iscoroutinefunction(deliver) and not deliveries.awaits:
            raise TypeError("deliver is a coroutine function, which a sync kit cannot await: use connect_async")

    def add(self, tx: Any, payload: Any, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> Any:
        """Add a message inside the caller's transaction; its id."""
        if tx is None:
            raise ValueError(
                "a message is added inside a transaction: pass your session, or what kit.transaction() gives"
            )
        if headers is not None and MESSAGE_ID in headers:
            raise ValueError(f"the header {MESSAGE_ID!r} is the outbox's own: leave it out, add() gives the id")
        if key is not None:
            arguments.key(key)
        message_id = str(uuid4())
        text = encode_headers({**(with_trace(headers) or {}), MESSAGE_ID: message_id})
        return self._execute(AddMessage(self.queue.name, self._codec.encode(payload), text, key, message_id), tx)

    def run(self, worker: str | None = None, *, batch: int = 1) -> Any:
        """Deliver messages until the outbox is stopped or the kit is closed."""
        if self._deliver is None:
            raise ValueError(f"outbox {self.name!r} has nothing to deliver with: kit.outbox({self.name!r}, deliver=…)")
        worker = arguments.default_worker() if worker is None else arguments.name("worker", worker)
        arguments.count("batch", batch, least=1)
        queue, kind = self.queue.name, ClaimInOrder if self._ordered else Claim

        def claim(queue: str) -> Claim:
            if self._stopped.is_set():
                raise Closed(f"outbox {self.name!r} was stopped")
            return kind(queue, worker, batch, None, fresh_token(), self._codec)

        opening, lookout = OpenOutbox(queue, _ATTEMPTS, _RETRY), Lookout(queue, self._stopped)
        rota = Rota({queue: 1}, claim)
        return self._deliveries.run(Round(opening, rota, lookout, self._deliver, self._ordered, self._tally))

    def stop(self) -> None:
        """Let every `run` of this handle end once its delivery has."""
        self._stopped.set()
        # In a thread, because a signal may have interrupted whoever holds the locks that this needs.
        threading.Thread(target=self._deliveries.rouse, name="eventkit-stop", daemon=True).start()

    def stats(self) -> Any:
        """The outbox in numbers."""
        return self._execute(ReadOutbox(self.queue.name, self._tally.numbers()))
