"""Locks among threads and processes: K1."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, LockHeld
from eventkit.checks import default_worker
from eventkit.testing import advance

from .clauses import proves
from .processes import Elsewhere, another_process, spawn  # noqa: F401  # a fixture
from .threads import PATIENCE, SOON, asleep, database_ms, eventually, line_up
from .urls import with_options


@pytest.fixture
def patient(connect: Callable[..., Any], url: str) -> Any:
    """Return a kit whose fallback poll never comes."""
    return connect(with_options(url, fallback_poll=3600))


def _contend(kit: EventKit, rounds: int) -> None:
    """Hold the lock several times, and publish when each time begins and ends."""
    lock, log = kit.lock("contended"), kit.stream("log")
    for _ in range(rounds):
        assert lock.acquire(wait=PATIENCE)
        log.publish([lock.fence, "begins"])
        log.publish([lock.fence, "ends"])
        assert lock.release()


def _contend_in_threads(url: str, threads: int, rounds: int) -> None:
    with eventkit.connect(url) as kit, ThreadPoolExecutor(threads) as pool:
        line_up(kit, 2)
        for future in [pool.submit(_contend, kit, rounds) for _ in range(threads)]:
            future.result(PATIENCE)


def _hold(url: str, ttl: float) -> None:
    with eventkit.connect(url) as kit:
        assert kit.lock("l", ttl=ttl).acquire()
        kit.queue("held").enqueue(None)
        time.sleep(PATIENCE)


def _acquire_and_release(url: str) -> float:
    """Hold the lock for a moment, and return when it was released."""
    with eventkit.connect(url) as kit:
        lock = kit.lock("l")
        assert lock.acquire(wait=PATIENCE)
        kit.queue("held").enqueue(None)
        time.sleep(0.3)
        assert lock.release()
        return time.time()


@proves("K1")
def test_a_lock_has_one_holder_at_a_time(kit: EventKit, connect: Any, url: str) -> None:
    mine, yours = kit.lock("l"), connect(url).lock("l")
    assert mine.acquire() is True
    assert yours.acquire() is False
    assert mine.release() is True
    assert yours.acquire() is True
    assert [mine.acquire(), mine.renew(), mine.release()] == [False, False, False]
    assert yours.release() is True
    assert yours.release() is False


@proves("K1", "G10")
def test_locks_of_different_names_are_independent(kit: EventKit) -> None:
    names = ["l", "L", "l ", "ann's 🐘: lock", "x" * 255]
    locks = [kit.lock(name) for name in names]
    assert [lock.acquire() for lock in locks] == [True] * 5
    assert [lock.name for lock in locks] == names
    for name in ("", "x" * 256, "a\nb"):
        with pytest.raises(ValueError, match="name of a lock"):
            kit.lock(name)


@proves("K1", "G1")
def test_making_a_handle_asks_nothing_of_the_database(kit: EventKit) -> None:
    lock = kit.lock("l")
    kit.close()
    assert lock.fence is None
    assert kit.lock("another").fence is None


@proves("K1")
def test_a_fence_grows_with_every_holder(kit: EventKit, connect: Any, url: str) -> None:
    """The fence grows however the previous holder ended."""
    fences: list[Any] = []
    for end in ("release", "expire", "release", "expire"):
        for lock in (kit.lock("l", ttl=10), connect(url).lock("l")):
            assert lock.fence is None
            assert lock.acquire()
            fences.append(lock.fence)
            assert not kit.lock("l").acquire()
            assert lock.renew()
            assert lock.fence == fences[-1]
            if end == "release":
                assert lock.release()
                assert lock.fence is None
            else:
                advance(kit, 60)
    assert all(type(fence) is int for fence in fences)
    assert fences == sorted(set(fences))
    other = kit.lock("other")
    assert other.acquire()
    assert other.fence is not None


@proves("K1")
def test_a_holder_does_not_get_it_twice(kit: EventKit) -> None:
    """Its second attempt is refused, and it keeps the lock."""
    lock = kit.lock("l")
    assert lock.acquire()
    fence = lock.fence
    assert lock.acquire() is False
    assert lock.acquire(wait=0.05) is False
    assert lock.fence == fence
    assert lock.release()


@proves("K1", "G7")
def test_a_lock_expires_by_the_databases_clock(kit: EventKit) -> None:
    """The holder has then lost it and cannot affect the next one's."""
    stale, next_one = kit.lock("l", ttl=60), kit.lock("l")
    assert stale.acquire()
    advance(kit, 60 - PATIENCE / 2)
    assert not next_one.acquire()
    advance(kit, PATIENCE / 2)
    assert next_one.acquire()
    assert [stale.renew(), stale.release(), stale.fence] == [False, False, None]
    assert not stale.acquire()
    assert next_one.release()


@proves("K1")
def test_an_expired_lock_is_lost_without_another_holder(kit: EventKit) -> None:
    lock, another = kit.lock("l"), kit.lock("m")
    assert lock.acquire()
    assert another.acquire()
    advance(kit, 61)
    assert lock.renew() is False
    assert another.release() is False
    assert lock.acquire()
    assert another.acquire()


@proves("K1")
def test_renewing_begins_the_ttl_anew(kit: EventKit) -> None:
    lock = kit.lock("l", ttl=2 * PATIENCE)
    assert lock.acquire()
    for _ in range(3):
        advance(kit, PATIENCE)
        assert lock.renew() is True
    assert not kit.lock("l").acquire()
    advance(kit, 2 * PATIENCE)
    assert kit.lock("l").acquire()


@proves("K1")
def test_a_renewal_may_have_a_ttl_of_its_own(kit: EventKit) -> None:
    """It holds until the next renewal, which has the handle's ttl again."""
    lock = kit.lock("l", ttl=PATIENCE)
    assert lock.acquire()
    assert lock.renew(ttl=5 * PATIENCE)
    advance(kit, 4 * PATIENCE)
    assert not kit.lock("l").acquire()
    assert lock.renew()
    advance(kit, PATIENCE)
    assert kit.lock("l").acquire()
    with pytest.raises(ValueError, match="ttl is at least"):
        lock.renew(ttl=0)


@proves("K1")
def test_a_holder_may_have_a_name_of_its_own(kit: EventKit) -> None:
    with kit.lock("l", holder="deploy 42"), pytest.raises(LockHeld, match="held by deploy 42 until") as caught:
        kit.lock("l").__enter__()
    assert caught.value.holder == "deploy 42"
    assert kit.lock("l", holder="deploy 43").acquire()
    with pytest.raises(LockHeld, match="held by deploy 43"):
        kit.lock("l").__enter__()
    with pytest.raises(ValueError, match="name of a holder"):
        kit.lock("l", holder="")


@proves("K1", "G13")
def test_entering_a_lock_that_is_held_says_by_whom_and_until_when(kit: EventKit, connect: Any, url: str) -> None:
    before = database_ms(kit)
    with kit.lock("l", ttl=100) as lock:
        assert lock.fence
        after = database_ms(kit)
        message = r"lock 'l' is held by .* until .*acquire\(wait=seconds\)"
        with pytest.raises(LockHeld, match=message) as caught, connect(url).lock("l"):
            raise AssertionError("two hold it")
    assert caught.value.name == "l"
    assert caught.value.holder == default_worker()
    assert caught.value.until is not None
    assert before + 100_000 <= round(caught.value.until.timestamp() * 1000) <= after + 100_000
    with pytest.raises(ZeroDivisionError), kit.lock("l"):
        raise ZeroDivisionError
    assert kit.lock("l").acquire()


@proves("K1")
def test_losing_a_lock_inside_its_block_is_logged(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    with kit.lock("l"):
        advance(kit, 61)
    assert "no longer held" in caplog.text


@proves("K1", "W1", "W2")
def test_a_release_in_another_process_wakes(patient: EventKit, url: str) -> None:
    with spawn(_acquire_and_release, url) as process:
        assert patient.queue("held").claim("w", wait=PATIENCE)
        lock = patient.lock("l")
        assert lock.acquire(wait=PATIENCE)
        woken = time.time()
        assert 0 <= woken - process.result() + 0.05 < SOON
    assert lock.fence == 2


@proves("K1")
def test_an_expiry_wakes_without_a_commit(patient: EventKit) -> None:
    assert patient.lock("l", ttl=0.4).acquire()
    started = time.monotonic()
    assert patient.lock("l").acquire(wait=PATIENCE)
    assert 0.3 < time.monotonic() - started < SOON


@proves("K1")
def test_a_renewal_is_waited_for_too(patient: EventKit) -> None:
    """The waiter waits until the new expiry, and not only until the one it knew."""
    held = patient.lock("l", ttl=1)
    assert held.acquire()
    waiting = asleep(patient.lock("l").acquire, wait=PATIENCE)
    time.sleep(0.4)
    assert held.renew()
    time.sleep(0.7)
    assert not waiting.done()
    assert waiting.result(SOON)


@proves("K1")
def test_a_renewal_that_shortens_a_lock_wakes(patient: EventKit) -> None:
    held = patient.lock("l", ttl=3600)
    assert held.acquire()
    waiting = asleep(patient.lock("l").acquire, wait=PATIENCE)
    assert held.renew(ttl=0.3)
    assert waiting.result(SOON)


@proves("K1")
def test_waiting_in_vain_ends(kit: EventKit) -> None:
    assert kit.lock("l").acquire()
    started = time.monotonic()
    assert kit.lock("l").acquire(wait=0.3) is False
    assert 0.3 <= time.monotonic() - started < SOON


@proves("K1", "G1")
def test_closing_the_kit_ends_the_wait(kit: EventKit, connect: Any, url: str) -> None:
    other = connect(url)
    assert kit.lock("l").acquire()
    waiting = asleep(other.lock("l").acquire, wait=PATIENCE)
    other.close()
    assert waiting.result(SOON) is False


@proves("K1")
def test_a_killed_holder_has_it_until_it_expires(patient: EventKit, url: str) -> None:
    with spawn(_hold, url, 2) as holder:
        assert patient.queue("held").claim("w", wait=PATIENCE)
        with pytest.raises(LockHeld) as caught, patient.lock("l"):
            raise AssertionError("two hold it")
        holder.kill()
    assert not patient.lock("l").acquire()
    lock = patient.lock("l")
    assert lock.acquire(wait=PATIENCE)
    assert caught.value.until is not None
    assert 0 <= database_ms(patient) - caught.value.until.timestamp() * 1000 < SOON * 1000


@proves("K1")
def test_fifty_contenders_never_overlap(kit: EventKit, url: str) -> None:
    """Half of them run in another process; the database's clock and the order of its events show it."""
    with spawn(_contend_in_threads, url, 25, 2), ThreadPoolExecutor(25) as pool:
        line_up(kit, 2)
        for future in [pool.submit(_contend, kit, 2) for _ in range(25)]:
            future.result(PATIENCE)
    events = kit.stream("log").read()
    fences = [event.payload[0] for event in events[::2]]
    assert len(fences) == 100
    assert fences == sorted(set(fences))
    assert [event.payload for event in events] == [[fence, what] for fence in fences for what in ("begins", "ends")]
    moments = [event.created_ms for event in events]
    assert moments == sorted(moments)


@proves("K1")
def test_a_ttl_lasts_and_a_wait_is_no_past(kit: EventKit) -> None:
    for ttl in (0, -1, 0.0001):
        with pytest.raises(ValueError, match="ttl is at least"):
            kit.lock("l", ttl=ttl)
    with pytest.raises(TypeError, match="ttl is a number"):
        kit.lock("l", ttl="60")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wait is at least"):
        kit.lock("l").acquire(wait=-1)
    assert eventually(lambda: kit.lock("l").acquire())
