"""What the service counts: its requests, what the database took for them, and what there is in the database.

What there is comes from the `watch.Watch`, and is the same whichever process is asked; all else is this process's own.
"""

from ..looks import WorkerInfo
from ..metrics import Counter, Gauge, Histogram, Registry
from ..operations.browse import Deaths
from ..stats import Overview

STATES = ("scheduled", "ready", "leased", "dead", "done")


class ServiceMetrics(Registry):
    """The metrics of one service; `docs/metrics.md` says what each is for."""

    def __init__(self) -> None:
        self.requests = Histogram(
            "eventkit_http_request_seconds", "How long requests took to answer.", "method", "route", "status"
        )
        self.open = Gauge("eventkit_http_requests_open", "Requests that are being answered.")
        self.database = Histogram(
            "eventkit_database_seconds", "How long the database took to answer the service.", "operation"
        )
        self.waits = Counter("eventkit_waits_total", "Waits of requests, by what ended them.", "source")
        self.tasks = Gauge("eventkit_queue_tasks", "Tasks of a queue, counted up to 10,000.", "queue", "state")
        self.oldest = Gauge("eventkit_queue_oldest_ready_seconds", "How long the oldest ready task is due.", "queue")
        self.paused = Gauge("eventkit_queue_paused", "1 while the queue hands out nothing, else 0.", "queue")
        self.deaths = Counter(
            "eventkit_deaths_total", "Tasks that have died while this was watched.", "queue", "reason"
        )
        self.head = Gauge("eventkit_stream_head", "The highest settled offset of a topic.", "topic")
        self.events = Gauge("eventkit_stream_events", "Events of a topic, counted up to 10,000.", "topic")
        self.lag = Gauge(
            "eventkit_consumer_lag", "Events that a consumer has yet to read, up to 10,000.", "topic", "consumer"
        )
        self.saved = Gauge(
            "eventkit_consumer_saved_seconds", "When a consumer saved its offset, since 1970.", "topic", "consumer"
        )
        self.fired = Counter("eventkit_schedule_fired_total", "Fires of a schedule that came to a task.", "schedule")
        self.skipped = Counter("eventkit_schedule_skipped_total", "Fires of a schedule that were missed.", "schedule")
        self.next_fire = Gauge("eventkit_schedule_next_seconds", "When a schedule fires next, since 1970.", "schedule")
        self.locks = Gauge("eventkit_locks_held", "Locks that somebody has.")
        self.results = Gauge("eventkit_results", "Results that are kept, counted up to 10,000.")
        self.workers = Gauge("eventkit_fleet_workers", "Workers that are alive, in all processes.")
        self.slots = Gauge("eventkit_fleet_slots", "How many tasks they may run at once.")
        self.running = Gauge("eventkit_fleet_running", "How many they do.")

    def show(self, overview: Overview, workers: list[WorkerInfo], deaths: list[Deaths]) -> None:
        """Say from now on what was seen, and nothing of what is gone."""
        for gauge in (self.tasks, self.oldest, self.paused, self.head, self.events, self.lag, self.saved):
            gauge.clear()
        for metric in (self.fired, self.skipped, self.next_fire):
            metric.cells = {}
        for name, queue in overview.queues.items():
            for state in STATES:
                self.tasks.of(name, state).value += getattr(queue, state)
            oldest = self.oldest.of(name)
            oldest.value = max(oldest.value, queue.oldest_ready_age or 0)
            self.paused.of(name).value += queue.paused
        for topic, stream in overview.topics.items():
            head = self.head.of(topic)
            head.value = max(head.value, stream.head)
            self.events.of(topic).value += stream.events
            for consumer in stream.consumers:
                self.lag.of(topic, consumer.name).value += consumer.lag
                saved = self.saved.of(topic, consumer.name)
                saved.value = max(saved.value, consumer.updated_ms / 1000)
        for name, schedule in overview.schedules.items():
            self.fired.of(name).value += schedule.fired
            self.skipped.of(name).value += schedule.skipped
            if schedule.next_ms is not None:
                self.next_fire.of(name).value = schedule.next_ms / 1000
        for death in deaths:
            self.deaths.of(death.queue, death.reason).value += death.number
        alive = [worker for worker in workers if worker.alive]
        self.locks.of().value = len(overview.locks)
        self.results.of().value = overview.results
        self.workers.of().value = len(alive)
        self.slots.of().value = sum(worker.slots or 0 for worker in alive)
        self.running.of().value = sum(worker.running or 0 for worker in alive)
