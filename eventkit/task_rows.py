"""New tasks as the database gets them: checked, payloads and headers as JSON text, durations in milliseconds."""

from datetime import datetime
from typing import Any

from . import arguments
from .codec import Codec, Encoded, encode_headers
from .operations.collected import CollectedTask
from .operations.enqueue import TaskRow
from .records import NewTask
from .telemetry import with_trace


def task_row(codec: Codec, queue: str, task: NewTask) -> TaskRow:
    """*task*, for *queue*, whose payloads *codec* encodes."""
    if task.queue is not None and task.queue != queue:
        raise ValueError(f"the task is for queue {task.queue!r}, not for {queue!r}: enqueue it there")
    run_at = expires_in = expires_at = None
    if task.delay is not None and task.run_at is not None:
        raise ValueError("a task is due after delay= seconds or at run_at=: pass one of them")
    if task.run_at is not None:
        run_at = arguments.moment("run_at", task.run_at)
    if isinstance(task.expires, datetime):
        expires_at = arguments.moment("expires", task.expires)
    elif task.expires is not None:
        expires_in = arguments.milliseconds("expires", task.expires, least=-arguments.FOREVER)
    return (
        task.payload.text if isinstance(task.payload, Encoded) else codec.encode(task.payload),
        encode_headers(with_trace(task.headers)),
        priority(task.priority),
        None if task.max_attempts is None else arguments.count("max_attempts", task.max_attempts, least=1),
        None if task.key is None else arguments.key(task.key),
        None if task.delay is None else arguments.milliseconds("delay", task.delay, least=-arguments.FOREVER),
        run_at,
        expires_in,
        expires_at,
    )


def following_row(codec: Codec, task: Any) -> CollectedTask:
    """A task that says its queue itself."""
    if not isinstance(task, NewTask) or task.queue is None:
        raise TypeError(f"then= takes tasks that know their queue, as queue.new(payload) makes them; not {task!r}")
    return (arguments.name("queue", task.queue), *task_row(codec, task.queue, task))


def priority(value: Any) -> int:
    """A priority, as any database can store it."""
    return arguments.count("priority", value, least=-(2**31), most=2**31 - 1)
