"""Types of queues as type checkers see them.  Checked by mypy and pyright, never run."""

from datetime import UTC, datetime, timedelta
from typing import assert_type

from payloads import Email

import eventkit
from eventkit import NewTask, Task, TaskQueue
from eventkit.protocols import AsyncTaskQueue
from eventkit.values import DeadTasks, Enqueued, QueueSettings, QueueStats, TaskInfo, TaskState


def queues(emails: TaskQueue[Email]) -> None:
    assert_type(emails.name, str)
    assert_type(emails.enqueue(Email("ann"), delay=30, priority=1, expires=timedelta(hours=1)), Enqueued)
    assert_type(emails.enqueue(Email("ann")).created, bool)
    assert_type(emails.enqueue_many([Email("ann"), NewTask(Email("bob"), delay=30)]), list[Enqueued])
    [task] = emails.claim("mailer", 1, lease=60, wait=1.5)
    assert_type(task, Task[Email])
    assert_type(task.payload, Email)
    assert_type(task.lease_expires_at, datetime)
    assert_type(emails.receive(10), list[Task[Email]])
    assert_type(emails.ack(task, result={"sent": True}), bool)
    assert_type(emails.new(Email("ann"), delay=timedelta(minutes=1), key="k"), NewTask)
    emails.new("no email")  # type: ignore[arg-type]
    assert_type(emails.ack(task, then=[emails.new(Email("bob"))]), bool)
    emails.ack(task, then=["no task"])  # type: ignore[list-item]
    assert_type(emails.ack_many([task], results={task.id: None}), list[int])
    assert_type(emails.ack_many([task]), list[int])
    assert_type(emails.retry(task, delay=1, error="later"), bool)
    assert_type(emails.fail(task, "never"), bool)
    assert_type(emails.release(task), bool)
    assert_type(emails.snooze(task, 60), bool)
    assert_type(emails.extend(task, 60), bool)
    assert_type(emails.ack((task.id, task.token)), bool)
    assert_type(emails.ack_many([(task.id, task.token)]), list[int])
    emails.ack(task.id)  # type: ignore[arg-type]
    assert_type(emails.cancel(42, running=True), bool)
    assert_type(emails.get(42), TaskInfo[Email] | None)
    assert_type(emails.tasks("dead"), list[TaskInfo[Email]])
    emails.tasks("lost")  # type: ignore[arg-type]
    assert_type(emails.tasks()[0].state, TaskState)
    assert_type(emails.peek(), list[TaskInfo[Email]])
    assert_type(emails.dead(), list[TaskInfo[Email]])
    assert_type(emails.dead_by_error(), list[DeadTasks])
    assert_type(emails.drop(force=True), bool)
    assert_type(emails.stats(), QueueStats)
    assert_type(emails.stats().oldest_ready_age, float | None)
    assert_type(emails.size(), int)
    assert_type(emails.next_due(), datetime | None)
    assert_type(emails.sweep(), int)
    assert_type(emails.purge("done"), int)
    emails.purge("all")  # type: ignore[arg-type]
    emails.configure(retry="exponential")
    emails.configure(retry="sometimes")  # type: ignore[arg-type]
    assert_type(emails.purge_dead(older_than=60), int)
    assert_type(emails.requeue([1, 2]), int)
    emails.pause()
    emails.resume()
    emails.configure(max_attempts=5, retry=eventkit.Exponential(base=2), max_size=None)
    emails.configure(retry=[1, 5, 30], keep_dead=timedelta(days=90))
    assert_type(emails.settings(), QueueSettings)
    for work in emails.work("mailer", batch=10):
        with emails.handling(work) as handled:
            assert_type(handled, Task[Email])


async def async_queues(emails: AsyncTaskQueue[Email]) -> None:
    assert_type(emails.name, str)
    assert_type(await emails.enqueue(Email("ann"), run_at=datetime.now(UTC), wait=5), Enqueued)
    assert_type(await emails.enqueue_many([Email("ann"), NewTask(Email("bob"), delay=30)]), list[Enqueued])
    [task] = await emails.claim("mailer", 1, lease=60, wait=1.5)
    assert_type(task, Task[Email])
    assert_type(await emails.receive(10), list[Task[Email]])
    assert_type(await emails.ack(task, result={"sent": True}), bool)
    assert_type(emails.new(Email("ann")), NewTask)
    assert_type(await emails.ack(task, then=[emails.new(Email("bob"))]), bool)
    assert_type(await emails.ack_many([task], results={task.id: 1}), list[int])
    assert_type(await emails.ack_many([task]), list[int])
    assert_type(await emails.retry(task, delay=1, error="later"), bool)
    assert_type(await emails.fail(task, "never"), bool)
    assert_type(await emails.release(task), bool)
    assert_type(await emails.snooze(task, timedelta(minutes=1)), bool)
    assert_type(await emails.extend(task, 60), bool)
    assert_type(await emails.cancel(42, running=True), bool)
    assert_type(await emails.get(42), TaskInfo[Email] | None)
    assert_type(await emails.tasks("dead"), list[TaskInfo[Email]])
    assert_type(await emails.peek(), list[TaskInfo[Email]])
    assert_type(await emails.dead(), list[TaskInfo[Email]])
    assert_type(await emails.dead_by_error(), list[DeadTasks])
    assert_type(await emails.drop(force=True), bool)
    assert_type(await emails.stats(), QueueStats)
    assert_type(await emails.size(), int)
    assert_type(await emails.next_due(), datetime | None)
    assert_type(await emails.sweep(), int)
    assert_type(await emails.purge("done"), int)
    assert_type(await emails.purge_dead(older_than=60), int)
    assert_type(await emails.requeue([1, 2]), int)
    await emails.pause()
    await emails.resume()
    await emails.configure(max_attempts=5, retry="linear", max_size=None)
    assert_type(await emails.settings(), QueueSettings)
    async for work in emails.work("mailer", batch=10):
        async with emails.handling(work) as handled:
            assert_type(handled, Task[Email])
