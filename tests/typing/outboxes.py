"""Types of outboxes and inboxes as type checkers see them.  Checked by mypy and pyright, never run."""

from datetime import timedelta
from typing import assert_type

from payloads import Email, send, send_later

from eventkit import AsyncEventKit, EventKit, TaskQueue
from eventkit.protocols import AsyncInbox, AsyncOutbox, AsyncTaskQueue
from eventkit.values import InboxSettings, OutboxStats, TaskInfo


def outboxes(kit: EventKit) -> None:
    outbox = kit.outbox("webhooks", deliver=send, ordered=True, type=Email)
    with kit.transaction() as tx:
        assert_type(outbox.add(Email("ann@example.com"), tx=tx, key="ann", headers={"kind": "greeting"}), str)
        outbox.add({"to": "ann@example.com"}, tx=tx)  # type: ignore[arg-type]
        assert_type(outbox.add(Email("ann@example.com"), delay=30, priority=1, expires=timedelta(hours=1)), str)
        assert_type(kit.inbox("billing").once("id", tx=tx), bool)
        kit.inbox("billing").once("id", tx)  # type: ignore[call-arg]
    assert_type(outbox.stats(), OutboxStats)
    assert_type(outbox.queue, TaskQueue[Email])
    assert_type(outbox.queue.dead(), list[TaskInfo[Email]])
    assert_type(kit.inbox("billing").prune(older_than=timedelta(days=1)), int)
    assert_type(kit.inbox("billing").configure(keep=None), None)
    assert_type(kit.inbox("billing").settings(), InboxSettings)


async def async_outboxes(kit: AsyncEventKit) -> None:
    outbox = kit.outbox("webhooks", deliver=send_later, ordered=True, type=Email)
    assert_type(outbox, AsyncOutbox[Email])
    assert_type(kit.outbox("webhooks", deliver=send, type=Email), AsyncOutbox[Email])
    assert_type(kit.inbox("billing"), AsyncInbox)
    async with kit.transaction() as tx:
        assert_type(await outbox.add(Email("ann@example.com"), tx=tx), str)
        assert_type(await kit.inbox("billing").once("id", tx=tx), bool)
    assert_type(await kit.inbox("billing").configure(keep=60), None)
    assert_type(await kit.inbox("billing").settings(), InboxSettings)
    assert_type(await outbox.stats(), OutboxStats)
    assert_type(outbox.queue, AsyncTaskQueue[Email])
    assert_type(outbox.stop(), None)
    assert_type(await outbox.run("courier", batch=10), None)
