"""Every call that takes ``tx=``, and a view of what it changes."""

from collections.abc import Callable
from typing import Any

from eventkit import EventKit, Task

WRITES: dict[str, Callable[[Any, Task[Any], Any], Any]] = {
    "publish": lambda kit, task, tx: kit.stream("t").publish(1, tx=tx),
    "publish dedup": lambda kit, task, tx: kit.stream("t").publish(1, dedup="d", tx=tx),
    "publish_many": lambda kit, task, tx: kit.stream("t").publish_many([1, 2], tx=tx),
    "enqueue": lambda kit, task, tx: kit.queue("q").enqueue(1, tx=tx),
    "enqueue key": lambda kit, task, tx: kit.queue("q").enqueue(1, key="k", delay=5, tx=tx),
    "enqueue_many": lambda kit, task, tx: kit.queue("q").enqueue_many([1, 2], tx=tx),
    "notify": lambda kit, task, tx: kit.channel("c").notify(1, tx=tx),
    "save_offset": lambda kit, task, tx: kit.stream("t").save_offset("consumer", 9, tx=tx),
    "seek": lambda kit, task, tx: kit.stream("t").seek("consumer", 1, tx=tx),
    "remove_consumer": lambda kit, task, tx: kit.stream("t").remove_consumer("consumer", tx=tx),
    "claim": lambda kit, task, tx: kit.queue("q").claim("w", tx=tx),
    "receive": lambda kit, task, tx: kit.queue("q").receive(tx=tx),
    "ack": lambda kit, task, tx: kit.queue("q").ack(task, tx=tx),
    "ack result": lambda kit, task, tx: kit.queue("q").ack(task, result="kept", tx=tx),
    "ack then": lambda kit, task, tx: kit.queue("q").ack(task, then=[kit.queue("q").new("next")], tx=tx),
    "ack_many results": lambda kit, task, tx: kit.queue("q").ack_many([task], tx=tx, results={task.id: "kept"}),
    "ack_many": lambda kit, task, tx: kit.queue("q").ack_many([task], tx=tx),
    "retry": lambda kit, task, tx: kit.queue("q").retry(task, error="again", tx=tx),
    "fail": lambda kit, task, tx: kit.queue("q").fail(task, "never", tx=tx),
    "release": lambda kit, task, tx: kit.queue("q").release(task, tx=tx),
    "snooze": lambda kit, task, tx: kit.queue("q").snooze(task, 60, tx=tx),
    "extend": lambda kit, task, tx: kit.queue("q").extend(task, 5000, tx=tx),
    "cancel": lambda kit, task, tx: kit.queue("q").cancel(task.id, running=True, tx=tx),
    "save result": lambda kit, task, tx: kit.results.save("r", "saved", tx=tx),
    "add schedule": lambda kit, task, tx: kit.schedules.add("new", "@every 1h", "q", [1], headers={"a": "b"}, tx=tx),
    "add schedule again": lambda kit, task, tx: kit.schedules.add("s", "@every 2h", "q", tx=tx),
    "remove schedule": lambda kit, task, tx: kit.schedules.remove("s", tx=tx),
    "pause schedule": lambda kit, task, tx: kit.schedules.pause("s", tx=tx),
    "resume schedule": lambda kit, task, tx: kit.schedules.resume("paused", tx=tx),
    "update schedule": lambda kit, task, tx: kit.schedules.update("s", payload="other", tx=tx),
}


def prepare(kit: EventKit, name: str) -> Task[Any]:
    """Create the rows that the call changes, in place of those of the call before.

    There are a consumer, a leased task, a waiting one and two schedules.
    """
    kit.stream("t").prune(keep_count=0, keep_unconsumed=False)
    kit.channel("c").prune(keep_count=0)
    for state in ("scheduled", "ready", "running", "dead", "done"):
        kit.queue("q").purge(state)
    kit.stream("t").seek("consumer", 5)
    kit.queue("q").configure(keep_done=1000 if name == "ack result" else None)
    kit.schedules.add("s", "@every 1h", "q")
    kit.schedules.add("paused", "@every 1h", "q", paused=True)
    kit.queue("q").enqueue_many(["first", "second"])
    [task] = kit.queue("q").claim("w")
    return task


def visible(kit: EventKit) -> Any:
    """Return all visible state that a call may have changed."""
    stream, queue = kit.stream("t"), kit.queue("q")
    saved = kit.results.get("r")
    return (
        [event.payload for event in stream.read()],
        stream.offset("consumer"),
        queue.tasks(),
        kit.schedules.list(),
        saved,
    )


def sent(kit: EventKit) -> list[Any]:
    """Return the notifications so far."""
    end = kit.channel("c").notify("end")
    with kit.channel("c").listen(start="earliest") as notifications:
        sent = []
        while (notification := next(notifications)).id < end:
            sent.append(notification.payload)
    return [payload for payload in sent if payload != "end"]


def events(kit: EventKit) -> list[Any]:
    """Return the published payloads."""
    return [event.payload for event in kit.stream("t").read()]
