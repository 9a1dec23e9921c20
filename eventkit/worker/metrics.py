"""What a worker counts; `instruments` shows OpenTelemetry the same."""

from ..metrics import Counter, Gauge, Histogram, Registry


class Metrics(Registry):
    """The metrics of one worker; `docs/metrics.md` says what each is for."""

    def __init__(self) -> None:
        self.ended = Counter(
            "eventkit_tasks_ended_total", "Runs of tasks that have ended, by how.", "queue", "task", "outcome"
        )
        self.seconds = Histogram("eventkit_task_seconds", "How long runs of tasks took.", "queue", "task")
        self.lateness = Histogram(
            "eventkit_task_wait_seconds", "From when a task was due to when it was claimed.", "queue"
        )
        self.claims = Counter("eventkit_worker_claims_total", "Claims that came to something.", "queue")
        self.claimed = Counter("eventkit_worker_claimed_total", "Tasks that were claimed.", "queue")
        self.acks = Counter("eventkit_worker_ack_batches_total", "Batches of tasks that were acked together.")
        self.slots = Gauge("eventkit_worker_slots", "How many tasks may run at once.")
        self.running = Gauge("eventkit_worker_running", "Tasks that are running.")
        self.waiting = Gauge("eventkit_worker_waiting", "Tasks that were claimed and wait for a slot.")
        self.stuck = Gauge("eventkit_worker_stuck", "Slots of runs that go on although they were stopped.")
        self.unsaid = Gauge("eventkit_worker_unsaid", "Outcomes that the database has not been told yet.")
        self.up = Gauge("eventkit_worker_database_up", "1 while the database answers, else 0.")
        self.failures = Counter("eventkit_worker_database_failures_total", "Calls that the database did not answer.")
        self.events = Counter(
            "eventkit_events_handled_total", "Events that subscribers have handled.", "topic", "consumer", "outcome"
        )
        self.notifications = Counter(
            "eventkit_notifications_handled_total", "Notifications that listeners have handled.", "channel", "outcome"
        )
