"""The OpenAPI document, and whether all answers of the service conform to it."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from jsonschema_rs import Draft202012Validator
from schemathesis import GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks
from services import Served, Started

from eventkit.conformance.clauses import proves

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'served.db'}?durability=off"
    return str(request.getfixturevalue("emptied_url"))


@pytest.fixture(name="settings")
def short_waits() -> str:
    """Shorten all waits."""
    return "max_wait = 0.01"


REJECTED = (400, 405, 413, 415, 422)  # A valid request is not answered like this in any state of the database.


def explore(address: str, examples: int) -> int:
    """Send *examples* of every kind of request, valid ones and invalid ones; return how many."""
    document = requests.get(f"{address}/openapi.json", timeout=60).json()
    schema = openapi.from_dict(document)
    schema.config.generation.update(with_security_parameters=False)
    sent = 0
    with requests.Session() as session:
        for result in schema.get_all_operations():
            operation = result.ok()
            if operation.path.endswith("/sse"):
                continue  # These streams do not end.
            for mode in GenerationMode:

                @settings(
                    max_examples=examples,
                    deadline=None,
                    database=None,
                    derandomize=True,
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=operation.as_strategy(generation_mode=mode))
                def keeps_to_the_document(case: Any) -> None:
                    nonlocal sent
                    response = case.call(base_url=address, session=session, timeout=60)
                    case.validate_response(response, checks=CHECKS)
                    valid = case.meta.generation.mode.is_positive
                    assert not valid or response.status_code not in REJECTED, response.text
                    sent += 1

                # A request without a body and parameters cannot be invalid.
                with warnings.catch_warnings(), contextlib.suppress(Unsatisfiable):
                    warnings.simplefilter("ignore")
                    keeps_to_the_document()
    return sent


@proves("E8")
def test_its_examples_and_defaults_are_valid(served: Served) -> None:
    """The document is OpenAPI 3.1: each default and example fits its schema, and integers have integers as bounds."""
    document = served("GET", "/openapi.json").json()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert document["paths"]["/queues/{queue}/tasks"]["post"]["security"] == [{"key": ["produce:queue"]}, {}]
    found = [schema for schema in schemas(document) if "default" in schema or "examples" in schema]
    assert len(found) > 50
    for schema in found:
        validator = Draft202012Validator(schema | {"components": document["components"]})
        for value in [schema[name] for name in ("default",) if name in schema] + schema.get("examples", []):
            validator.validate(value)
    integers = [one for one in schemas(document) if one.get("type") == "integer"]
    assert {type(one[name]) for one in integers for name in ("minimum", "maximum") if name in one} == {int}
    for name in ("NewTask", "FollowingTask"):
        schema = document["components"]["schemas"][name]
        assert schema["additionalProperties"] is False
        assert schema["not"] == {"required": ["delay_ms", "run_at"]}
    for path in ("/queues/{queue}/tasks", "/queues/{queue}/ack", "/webhooks"):  # A key may have another payload.
        assert "409" in document["paths"][path]["post"]["responses"], path
    metrics = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    assert metrics["application/json"]["schema"] != metrics["text/plain"]["schema"]


def schemas(part: Any) -> Iterator[dict[str, Any]]:
    """Yield each schema in a part of the document that has a type or refers to one."""
    if isinstance(part, dict):
        if "type" in part or "$ref" in part or "anyOf" in part:
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from schemas(one)


@proves("E8")
def test_it_keeps_to_its_document(started: Started) -> None:
    """Hundreds of valid and invalid requests get no 500, and no answer outside of the document."""
    assert explore(started.address, 3) >= 200
    assert "Traceback" not in started.log.read_text()


@pytest.mark.slow
@proves("E8")
def test_it_keeps_to_its_document_for_long(started: Started) -> None:
    """Twenty thousand requests conform."""
    assert explore(started.address, 300) >= 20_000
    assert "Traceback" not in started.log.read_text()
