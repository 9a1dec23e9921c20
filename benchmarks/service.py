"""The service: the rate of messages over HTTP, and the cost of waiting clients.

The load comes from another process, over persistent connections.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator

import eventkit

from .clients import Load
from .payloads import payloads
from .processes import Remote
from .report import Table, milliseconds, percent, ratio, thousands, verdict
from .rounds import Spread
from .servers import Echo, Service
from .settings import Settings

_CONNECTIONS = 16
_WAITING = 1000
_ROUNDS = 5


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the service on a file."""
    yield from tables(settings, "", lambda name: f"sqlite:///{settings.folder(f'http-{name}')}/kit.db", 20_000)


def tables(settings: Settings, title: str, new_database: Callable[[str], str], bar: int) -> Iterator[Table]:
    """Yield tables of throughput, of the cost of waiting, and of the delay from a commit to a client."""
    yield _throughput(settings, title, new_database("throughput"), bar)
    yield _waiting(settings, title, new_database("waiting"))
    yield _hearing(settings, title, new_database("hearing"))


def _throughput(settings: Settings, title: str, url: str, bar: int) -> Table:
    table = Table(
        f"{title}Service: messages in and out",
        ("what", "messages/s", "beside it", "ratio", "p99 at half the load", "bar", "reached"),
        note=(
            f"{_CONNECTIONS} connections; rounds take turns, {settings.seconds(3):g} s each. *echo* is the same "
            "framework and server with one route that returns a JSON body. The library's own is one process that "
            "enqueues 100 at a time, one call after the other."
        ),
    )
    rounds = 1 if settings.quick else _ROUNDS
    seconds = settings.seconds(3)
    with (
        Service(url, settings) as service,
        Echo(settings) as echo,
        Remote(Load, service.port) as load,
        Remote(Load, echo.port) as echoing,
        Remote(Library, url) as library,
    ):
        load.call("prepare")
        one, hundred = _body(1), _body(100)
        shares, hundreds, rates, drains = [], [], [], []
        for _ in range(rounds):
            bare = echoing.call("post", "/echo", one, _CONNECTIONS, seconds)
            rates.append((load.call("post", "/queues/in/messages", one, _CONNECTIONS, seconds), bare))
            shares.append(rates[-1][0] / bare)
            own = library.call("enqueue_many", seconds)
            many = 100 * load.call("post", "/queues/in/messages", hundred, 4, seconds)
            hundreds.append((many, own))
            library.call("fill", settings.count(60_000, least=2_000))
            drains.append(load.call("drain", 4, seconds))
        rate, bare = (statistics.median(column) for column in zip(*rates, strict=True))
        late = load.call("steady", "/queues/in/messages", one, _CONNECTIONS, rate / 2, seconds)
        spread = Spread.of(shares)
        good = verdict(spread.median >= 0.5)
        cells = [thousands(rate), f"echo {thousands(bare)}", ratio(spread), milliseconds(late)]
        table.add(["enqueue, one a request", *cells, "≥ 0.5", good])
        many, own = (statistics.median(column) for column in zip(*hundreds, strict=True))
        spread = Spread.of([a / b for a, b in hundreds])
        cells = [thousands(many), f"the library {thousands(own)}", ratio(spread), "–"]
        table.add(["enqueue, 100 a request", *cells, "≥ 0.8", verdict(spread.median >= 0.8)])
        drained = statistics.median(drains)
        cells = [thousands(drained), "–", "–", "–", f"≥ {thousands(bar)}/s", verdict(drained >= bar)]
        table.add(["poll + ack of 32", *cells])
    return table


def _waiting(settings: Settings, title: str, url: str) -> Table:
    number = settings.count(_WAITING, least=20)
    table = Table(
        f"{title}Service: waiting clients",
        ("clients", "memory of the service", "processor, of a core", "bar", "reached"),
        note=(
            f"Over {settings.seconds(15):g} s, beginning as long after they have connected; "
            "the service sends the listeners a heartbeat every 15 s."
        ),
    )
    with Service(url, settings) as service, Remote(Load, service.port) as load:
        load.call("prepare")
        before = service.memory()
        load.call("wait", number)
        # Clients that have just begun to wait poll a few times more.
        time.sleep(settings.seconds(15))
        began, spent = time.monotonic(), service.processor()
        time.sleep(settings.seconds(15))
        share, memory = (service.processor() - spent) / (time.monotonic() - began), service.memory()
        good = verdict(memory <= 150 and share <= 0.03)
        clients = f"{number:,} long-polls and {number:,} listeners"
        table.add(["none", f"{before:.0f} MB", "–", "–", "–"])
        table.add([clients, f"{memory:.0f} MB", percent(share), "≤ 150 MB, ≤ 3 %", good])
    return table


def _hearing(settings: Settings, title: str, url: str) -> Table:
    table = Table(
        f"{title}Service: from a commit to a listener's socket",
        ("events", "median", "p99", "bar", "reached"),
        note="Published by another process, without HTTP, one at a time after pauses of 10 ms.",
    )
    number = settings.count(500, least=10)
    with Service(url, settings) as service, Remote(Load, service.port) as load, Remote(Library, url) as library:
        load.begin("listen", number)
        time.sleep(1)
        sent = library.call("publish", number)
        heard = load.result()
        delays = sorted((there - gone) / 1e9 for there, gone in zip(heard, sent, strict=True))
        median = statistics.median(delays)
        p99 = delays[min(len(delays) - 1, int(len(delays) * 0.99))]
        table.add([f"{number}", milliseconds(median), milliseconds(p99), "≤ 3 ms", verdict(median <= 0.003)])
    return table


def _body(number: int) -> bytes:
    items = [{"payload": payload} for payload in payloads(number)]
    return json.dumps(items[0] if number == 1 else items).encode()


class Library:
    """A kit in a process of its own."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)

    def enqueue_many(self, seconds: float) -> float:
        """Return the messages a second, 100 at a time."""
        queue, batch, number = self._kit.queue("in"), list(payloads(100)), 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            queue.enqueue_many(batch)
            number += 100
        return number / (time.perf_counter() - began)

    def fill(self, number: int) -> None:
        """Leave exactly *number* messages ready."""
        queue = self._kit.queue("out")
        queue.purge("ready")
        for _ in range(number // 1000):
            queue.enqueue_many(list(payloads(1000)))

    def publish(self, number: int) -> list[int]:
        """Publish events one at a time, and return when each was committed."""
        stream, moments = self._kit.stream("orders"), []
        for n in range(number):
            time.sleep(0.01)
            stream.publish(n)
            moments.append(time.monotonic_ns())
        return moments

    def close(self) -> None:
        """Close the connection to the database."""
        self._kit.close()
