"""The OpenAPI document, and whether all answers of the service conform to it."""

import contextlib
import warnings
from pathlib import Path

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks
from services import Started

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


def explore(address: str, examples: int) -> int:
    """Send *examples* of every kind of request, valid ones and invalid ones; return how many."""
    document = requests.get(f"{address}/openapi.json", timeout=60).json()
    schema = openapi.from_dict(document)
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
                def keeps_to_the_document(case: object) -> None:
                    nonlocal sent
                    response = case.call(base_url=address, session=session, timeout=60)  # type: ignore[attr-defined]
                    case.validate_response(response, checks=CHECKS)  # type: ignore[attr-defined]
                    sent += 1

                # A request without a body and parameters cannot be invalid.
                with warnings.catch_warnings(), contextlib.suppress(Unsatisfiable):
                    warnings.simplefilter("ignore")
                    keeps_to_the_document()
    return sent


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
