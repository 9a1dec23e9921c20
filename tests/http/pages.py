"""A database with rows of every kind for tests of the dashboard, hostile texts included."""

from typing import Any

from eventkit import EventKit, NewEvent, NewTask
from eventkit.operations.coordination import Beat

SCRIPT = '</script><script>document.title="owned"</script>'
QUOTES = "\"'><img src=x onerror=document.title='owned'>"
BIDI = "\u202eexe.txt\u202c\u2066\u200b"
HOSTILE = f"{SCRIPT}{QUOTES}{BIDI}{{{{7*7}}}}"
LONG = "x" * 500_000


def fill(kit: EventKit) -> dict[str, Any]:
    """Fill the kit and return the ids that tests use."""
    execute = kit._connection.execute  # type: ignore[attr-defined]
    queue = kit.queue("emails")
    queue.configure(history=True, max_attempts=1, keep_done=3600)
    queue.enqueue_many([NewTask({"to": f"user {number}"}, key=f"key {number}") for number in range(60)])
    tasks = queue.claim("mailer", 6)
    for task in tasks[:3]:
        queue.fail(task, "Traceback\nConnectionRefused: by mail.internal")
    queue.fail(tasks[3], HOSTILE)
    queue.ack(tasks[4], result={"sent": True})
    hostile = kit.queue(HOSTILE[:255])
    hostile.enqueue({"text": HOSTILE}, key=HOSTILE, headers={"x": HOSTILE})
    hostile.enqueue(LONG)
    hostile.claim(HOSTILE[:255])
    stream = kit.stream("orders")
    offsets = stream.publish_many([NewEvent({"order": number}, key=f"customer {number % 7}") for number in range(70)])
    stream.save_offset("warehouse", offsets[20])
    kit.stream(HOSTILE[:255]).publish({"text": HOSTILE, "long": LONG[:100_000]}, key=HOSTILE)
    kit.stream(HOSTILE[:255]).save_offset(HOSTILE[:255], 1)
    kit.schedules.add("nightly", "0 3 * * *", "emails", tz="Europe/Berlin")
    kit.schedules.add(HOSTILE[:255], "@every 1h", "emails")
    kit.lock(HOSTILE[:255]).acquire()
    kit.limit(HOSTILE[:255], count=10, per=3600).acquire()
    execute(Beat("mailer", ["emails"], 20, 7))
    execute(Beat(HOSTILE[:255], [HOSTILE[:255]], 4, 1))
    return {"dead": tasks[0].id, "done": tasks[4].id, "offset": offsets[-1], "stream": offsets}
