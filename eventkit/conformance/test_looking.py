"""Who works, and which limits have something to say: H5, H6."""

from eventkit import EventKit
from eventkit.testing import advance

from .clauses import proves


@proves("H5")
def test_whoever_has_tasks_leased_is_told(kit: EventKit) -> None:
    """By name, with their queues, how many tasks they hold, and since when; and nobody else."""
    assert kit.workers() == []
    for name, worker, number in (("emails", "b", 2), ("orders", "a", 1), ("orders", "b", 1)):
        queue = kit.queue(name)
        queue.enqueue_many(range(number))
        assert len(queue.claim(worker, number, lease=60)) == number
    kit.queue("waiting").enqueue(1)
    kit.queue("later").enqueue(1, delay=600)
    one, two = kit.workers()
    assert (one.name, one.queues, one.leased) == ("a", ["orders"], 1)
    assert (two.name, two.queues, two.leased) == ("b", ["emails", "orders"], 3)
    assert (two.slots, two.running, two.seen_at) == (None, None, None)
    assert not two.alive
    held = kit.queue("emails").list("leased")
    assert two.oldest_claim_at == min(task.claimed_at for task in held if task.claimed_at)
    advance(kit, 61)
    assert kit.workers() == []


@proves("H6")
def test_limits_are_told_while_they_have_something_to_say(kit: EventKit) -> None:
    """Windows with what they have counted, buckets with what is left; by name, and as many as are asked for."""
    assert kit.limits() == []
    assert [kit.rate_limit("api", 2, 3600) for _ in range(3)] == [True, True, False]
    assert kit.token_bucket("bucket", 1, burst=10)
    window, bucket = kit.limits()
    assert (window.name, window.per, window.amount) == ("api", 3600, 2)
    assert (bucket.name, bucket.per, bucket.amount) == ("bucket", None, 9)
    assert window.counted_at < window.until
    assert kit.limits(1) == [window]
    advance(kit, 3600)
    assert kit.limits() == []
