"""Call the service by a client that was generated into a folder; the arguments are the folder and the address."""

import importlib
import sys


def goes_round(client: object) -> None:
    """Send a task through a queue and events through a stream, and make a refused call."""

    def call(tag: str, operation: str, **given: object) -> object:
        """Return the answer of an operation of the client."""
        module = importlib.import_module(f"generated.api.{tag}.{operation}")
        return module.sync(client=client, **given)

    models = importlib.import_module("generated.models")
    queue = call("queues", "create_queue", body=models.QueueInput(name="emails", lease=60))
    assert queue.name == "emails"
    task = models.NewTask(payload={"to": "ann"}, priority=3)
    accepted = call("queues", "add_tasks", queue="emails", body=task)
    [taken] = call("queues", "poll", queue="emails", batch=5)
    assert (taken.id, taken.payload, taken.priority) == (accepted.id, {"to": "ann"}, 3)
    [outcome] = call("queues", "ack", queue="emails", body=models.Held(id=taken.id, token=taken.token))
    assert outcome.done
    published = call("streams", "publish", stream="orders", body=[models.IncomingEvent(payload=n) for n in range(3)])
    events = call("streams", "read_events", stream="orders", after=published.offsets[0])
    assert [event.payload for event in events] == [1, 2]
    refused = call("queues", "get_queue", queue="none")
    assert (refused.status, refused.code) == (404, "unknown_queue")


if __name__ == "__main__":
    folder, address = sys.argv[1:]
    sys.path.insert(0, folder)
    with importlib.import_module("generated").Client(base_url=address) as client:
        goes_round(client)
