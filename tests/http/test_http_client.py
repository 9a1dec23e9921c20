"""A client that is generated from the OpenAPI document works."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from services import Started

from eventkit.conformance.clauses import proves


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The document is the same for every database."""
    return f"sqlite:///{tmp_path / 'served.db'}"


@pytest.mark.slow
@proves("E8")
def test_a_generated_client_works(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by openapi-python-client without a warning, and good for a round through a queue and a stream."""
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(httpx.get(f"{started.address}/openapi.json").json()))
    folder = tmp_path / "generated"
    command = ["generate", "--path", str(document), "--output-path", str(folder), "--meta", "none"]
    program = [sys.executable, "-m", "openapi_python_client", *command]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Warning" not in ran.stdout, ran.stdout
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("generated")
    with package.Client(base_url=started.address) as client:
        goes_round(client)


def goes_round(client: object) -> None:
    """A message through a queue, events through a stream, and a refusal."""

    def call(tag: str, operation: str, **given: object) -> object:
        """What an operation of the client answers."""
        module = importlib.import_module(f"generated.api.{tag}.{operation}")
        return module.sync(client=client, **given)

    models = importlib.import_module("generated.models")
    queue = call("queues", "create_queue", body=models.NewQueue(name="emails", lease=60))
    assert queue.name == "emails"
    message = models.NewMessage(payload={"to": "ann"}, priority=3)
    accepted = call("queues", "add_messages", queue="emails", body=message)
    [taken] = call("queues", "poll", queue="emails", batch=5)
    assert (taken.id, taken.payload, taken.priority) == (accepted.id, {"to": "ann"}, 3)
    [outcome] = call("queues", "ack", queue="emails", body=models.Held(id=taken.id, token=taken.token))
    assert outcome.done
    published = call("streams", "publish", stream="orders", body=[models.IncomingEvent(payload=n) for n in range(3)])
    events = call("streams", "read_events", stream="orders", after=published.offsets[0])
    assert [event.payload for event in events] == [1, 2]
    refused = call("queues", "get_queue", queue="none")
    assert (refused.status, refused.code) == (404, "unknown_queue")
