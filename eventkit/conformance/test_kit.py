"""Connecting and closing a kit, durability, and kits shared by threads (G12)."""

import asyncio
import contextlib
import inspect
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, protocols
from eventkit.errors import UnknownBackend

from .clauses import proves
from .processes import PATIENCE, Elsewhere, another_process, background, spawn  # noqa: F401  # a fixture
from .urls import with_options


@proves("G1")
def test_an_async_kit_is_awaited_or_entered(url: str) -> None:
    """`connect_async` works with ``await`` and with ``async with``, which closes the kit."""

    async def main() -> None:
        kit = await eventkit.connect_async(url)
        assert await kit.stream("t").publish(1) == 1
        await kit.close()
        async with eventkit.connect_async(url) as kit:
            assert [event.payload for event in await kit.stream("t").read()] == [1]
        with pytest.raises(eventkit.Closed):
            await kit.stream("t").publish(2)
        async with await eventkit.connect_async(url) as kit:
            assert await kit.stream("t").head() == 1
        with pytest.raises(eventkit.Closed):
            await kit.stream("t").head()

    asyncio.run(main())


@proves("G1")
@pytest.mark.parametrize("kind", ["EventKit", "EventStream", "TaskQueue", "NotificationChannel", "Schedules"])
def test_both_flavours_take_the_same_arguments(kind: str) -> None:
    """Every method of a sync kit but `async_` exists on the async one, with the same parameters and defaults."""

    def signatures(protocol: type) -> dict[str, list[inspect.Parameter]]:
        methods = {name: value for name, value in vars(protocol).items() if inspect.isfunction(value)}
        return {
            {"__enter__": "__aenter__", "__exit__": "__aexit__"}.get(name, name): [
                parameter.replace(annotation=parameter.empty)
                for parameter in inspect.signature(method).parameters.values()
            ]
            for name, method in methods.items()
            if name not in ("async_", "sync")
        }

    assert signatures(getattr(protocols, kind)) == signatures(getattr(protocols, f"Async{kind}"))


@proves("G1")
def test_leaving_with_closes(connect: Callable[..., Any], url: str) -> None:
    """A kit is a context manager that closes after an error too."""
    with connect(url) as kit:
        kit.stream("t").publish(1)
    with pytest.raises(eventkit.Closed):
        kit.stream("t").publish(2)
    with pytest.raises(ZeroDivisionError), connect(url) as kit:
        raise ZeroDivisionError
    with pytest.raises(eventkit.Closed):
        kit.stream("t").publish(2)


@proves("G1", "G13")
def test_use_after_close_is_refused(kit: EventKit) -> None:
    """Every call on a closed kit is `Closed`, also through handles made before; closing again does nothing."""
    stream, queue, channel = kit.stream("t"), kit.queue("q"), kit.channel("c")
    queue.enqueue(1)
    [task] = queue.claim("w")
    kit.close()
    kit.close()
    calls: list[Callable[[], Any]] = [
        lambda: stream.publish(1),
        lambda: stream.read(),
        lambda: stream.save_offset("c", 1),
        lambda: queue.enqueue(1),
        lambda: queue.claim("w"),
        lambda: queue.claim("w", wait=30),
        lambda: queue.ack(task),
        lambda: queue.configure(max_attempts=2),
        lambda: channel.notify(1),
        lambda: kit.schedules.add("s", "@hourly", "q"),
        lambda: kit.schedules.tick(),
        lambda: kit.queue("other").stats(),
        lambda: kit.transaction().__enter__(),
    ]
    for call in calls:
        with pytest.raises(eventkit.Closed, match="connect again"):
            call()


@proves("G1")
def test_closing_ends_all_waits(kit: EventKit) -> None:
    """Closing ends every waiting iterator normally; a waiting claim returns an empty list."""
    kit.queue("full").configure(max_size=1)
    kit.queue("full").enqueue(1)
    iterators = [
        kit.stream("t").subscribe(),
        kit.stream("t").subscribe("consumer"),
        kit.queue("q").work("w"),
        kit.channel("c").listen(),
        kit.listen("a", "b"),
    ]
    waiting = [background(list, iterator) for iterator in iterators]
    claims = [background(lambda: kit.queue("q").claim("w", wait=PATIENCE)) for _ in range(3)]
    for_room = background(lambda: kit.queue("full").enqueue(2, wait=PATIENCE))
    time.sleep(0.2)
    assert not any(future.done() for future in [*waiting, *claims, for_room])
    kit.close()
    assert [future.result(PATIENCE / 2) for future in waiting] == [[]] * len(waiting)
    assert [future.result(PATIENCE / 2) for future in claims] == [[]] * len(claims)
    with pytest.raises(eventkit.QueueFull):
        for_room.result(PATIENCE / 2)


@proves("G1")
def test_closing_right_after_a_write_ends(url: str) -> None:
    """A kit can be closed in the step in which its last call returned, and in any later one."""

    async def main() -> None:
        for number in range(120):
            kit = await eventkit.connect_async(url)
            await kit.stream("t").publish(number)
            for _ in range(number % 30):
                await asyncio.sleep(0)
            await kit.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    with eventkit.connect(url) as kit:
        assert len(kit.stream("t").read()) == 120


@proves("G2", "G13")
def test_an_unknown_scheme_lists_the_known_ones(connect: Callable[..., Any], url: str) -> None:
    """A URL that no installed backend serves is `UnknownBackend`, which lists the known schemes."""
    scheme = url.partition(":")[0]
    for unknown in ("nosuchdb:///x", "shop.db", ""):
        with pytest.raises(UnknownBackend, match=f"(?s)installed are:.*{scheme.replace('+', '.')}"):
            connect(unknown)
    with pytest.raises(TypeError):
        connect(Path("shop.db"))


@proves("G2")
def test_a_missing_driver_names_what_to_install(
    connect: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a backend that cannot be imported names the pip command."""
    package = tmp_path / "lacking-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: lacking\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[eventkit.backends]\nlacking = lacking_backend\n")
    (tmp_path / "lacking_backend.py").write_text("import a_driver_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownBackend, match=r"a_driver_nobody_has.*pip install 'eventkit-db\[lacking\]'"):
        connect("lacking:///x")


@proves("G2", "G13")
def test_an_option_that_means_nothing_is_refused(connect: Callable[..., Any], url: str) -> None:
    """An unknown option of the URL, or a value out of range, is a `ValueError` that names it."""
    with pytest.raises(ValueError, match="durabillity"):
        connect(with_options(url, durabillity="full"))
    for option, value in (("durability", "maybe"), ("fallback_poll", "-1"), ("max_payload", "lots")):
        with pytest.raises(ValueError, match=option):
            connect(with_options(url, **{option: value}))


@proves("G3")
def test_the_schema_is_made_unless_forbidden(connect: Callable[..., Any], new_url: str) -> None:
    """The first connect creates the schema, and with ``create=False`` the error names the command."""
    with pytest.raises(eventkit.NotMigrated, match="upgrade"):
        connect(new_url, create=False)
    with pytest.raises(eventkit.NotMigrated, match="upgrade"):
        connect(new_url, create=False)
    assert connect(new_url).stream("t").publish(1) == 1
    assert connect(new_url, create=False).stream("t").head() == 1


@proves("G3")
def test_many_may_be_the_first_to_connect(connect: Callable[..., Any], new_url: str) -> None:
    """Processes and threads that connect to a fresh place at once all get a kit on one schema."""
    with spawn(_connect_and_publish, new_url, 4), spawn(_connect_and_publish, new_url, 4):
        connect(new_url).stream("t").publish("here")
    assert len(connect(new_url).stream("t").read()) == 33


def _connect_and_publish(url: str, threads: int) -> None:
    barrier = threading.Barrier(threads)

    def run(number: int) -> None:
        barrier.wait()
        for _ in range(4):  # the last connection to close removes the write-ahead log
            with eventkit.connect(url) as kit:
                kit.stream("t").publish(number)

    for future in [background(run, number) for number in range(threads)]:
        future.result(PATIENCE)


@proves("G6")
def test_what_a_call_has_written_is_visible_to_all_processes(kit: EventKit, url: str, elsewhere: Elsewhere) -> None:
    """Without ``tx=`` a call is committed when it returns: another process sees it at once."""
    stream, queue = kit.stream("t"), kit.queue("q")
    for number in range(1, 21):
        offset = stream.publish(number)
        id, _ = queue.enqueue(number)
        stream.save_offset("c", number)
        assert elsewhere(_look, url, offset - 1, id) == ([number], number, "ready")
        [task] = queue.claim("w")
        assert elsewhere(_look, url, offset, id) == ([], number, "running")
        queue.ack(task)
        assert elsewhere(_look, url, offset, id) == ([], number, None)


def _look(url: str, after: int, id: int) -> tuple[list[Any], int, str | None]:
    with eventkit.connect(url) as kit:
        info = kit.queue("q").get(id)
        events = kit.stream("t").read(after)
        return [event.payload for event in events], kit.stream("t").offset("c"), info.state if info else None


@proves("G6")
@pytest.mark.parametrize("durability", ["full", "normal", "off"])
def test_a_killed_process_has_written_every_call_that_returned(url: str, tmp_path: Path, durability: str) -> None:
    """Every answered call is durable when its process is killed, at every level of durability."""
    answered = tmp_path / "answered"
    with spawn(_write_until_killed, with_options(url, durability=durability), answered) as writer:
        deadline = time.monotonic() + PATIENCE
        while not answered.exists() or answered.stat().st_size < 1000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        writer.kill()
    offsets = [int(line) for line in answered.read_text().split("\n")[:-1]]
    with eventkit.connect(url) as kit:
        assert {event.offset for event in kit.stream("t").read(limit=10**6)} >= set(offsets)
        assert {info.payload for info in kit.queue("q").tasks(limit=10**6)} >= set(offsets)


def _write_until_killed(url: str, answered: Path) -> None:
    kit = eventkit.connect(url)
    file = os.open(answered, os.O_WRONLY | os.O_CREAT)
    while True:
        offset = kit.stream("t").publish("x")
        kit.queue("q").enqueue(offset)
        os.write(file, f"{offset}\n".encode())


@proves("G12")
def test_a_handle_serves_many_threads(kit: EventKit) -> None:
    """Many threads use one handle at once; nothing is lost or mixed up."""
    stream, queue, channel = kit.stream("t"), kit.queue("q"), kit.channel("c")

    def run(thread: int) -> list[int]:
        offsets = []
        for number in range(20):
            offsets.append(stream.publish([thread, number]))
            queue.enqueue([thread, number])
            channel.notify([thread, number])
            stream.read(limit=3)
        return offsets

    offsets = [future.result(PATIENCE) for future in [background(run, thread) for thread in range(8)]]
    events = {event.offset: event.payload for event in stream.read()}
    for thread, mine in enumerate(offsets):
        assert [events[offset] for offset in mine] == [[thread, number] for number in range(20)]
    assert len(events) == 160
    claimed = [future.result(PATIENCE) for future in [background(queue.claim, "w", 40) for _ in range(6)]]
    ids = [task.id for tasks in claimed for task in tasks]
    assert len(ids) == len(set(ids)) == 160


@proves("G12")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork()")
def test_calls_of_a_forked_child_are_committed(connect: Callable[..., Any], url: str, flavour: str) -> None:
    """In a child of fork(), inherited kits and views are refused and new ones work; committed rows stay."""
    with spawn(_fork, url, flavour) as process:
        steps = process.result()
    assert "problem" not in steps
    payloads = [event.payload for event in connect(url).stream("t").read()]
    assert sorted(payloads) == sorted(["before", "after", *steps.split()])


def _fork(url: str, flavour: str) -> str:
    """Publish in the parent and in a child that outlives the parent's kit; return the child's answers."""
    asynchronous = flavour == "async"
    answers, answer = os.pipe()
    gate, opens = os.pipe()

    def publish(kit: Any, payload: str, loop: asyncio.AbstractEventLoop) -> None:
        call = kit.stream("t").publish(payload)
        if asynchronous:
            loop.run_until_complete(call)

    def connected(loop: asyncio.AbstractEventLoop) -> Any:
        async def wait() -> Any:
            return await eventkit.connect_async(url)

        return loop.run_until_complete(wait()) if asynchronous else eventkit.connect(url)

    async def in_view() -> Any:
        if asynchronous:
            return kit.sync()
        other = kit.async_()
        await other.stream("t").head()
        return other

    def child() -> str:
        steps = []
        loop = asyncio.new_event_loop()
        with contextlib.suppress(eventkit.Closed):
            call = view.stream("t").publish("inherited")
            loop.run_until_complete(asyncio.wait_for(call, 10))
            steps.append("inherited by a view")
        with contextlib.suppress(eventkit.Closed):
            publish(kit, "inherited", loop)
            steps.append("inherited")
        with contextlib.suppress(eventkit.Closed):
            fresh = connected(loop)
            publish(fresh, "fresh", loop)
            steps.append("fresh")
            os.close(opens)
            os.read(gate, 1)  # Wait until the parent has closed its kit.
            publish(fresh, "last", loop)
            steps.append("last")
        return " ".join(steps)

    loop = asyncio.new_event_loop()
    kit = connected(loop)
    publish(kit, "before", loop)
    view = loop.run_until_complete(in_view())
    pid = os.fork()
    if pid == 0:
        try:
            os.write(answer, child().encode())
        except BaseException as error:
            os.write(answer, f"problem: {error!r}".encode())
        finally:
            os._exit(0)
    time.sleep(0.2)
    publish(kit, "after", loop)
    if asynchronous:
        loop.run_until_complete(kit.close())
    else:
        kit.close()
    os.close(opens)
    os.close(answer)
    with os.fdopen(answers) as file:
        steps = file.read()
    os.waitpid(pid, 0)
    return steps
