"""Copies between databases of every kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moving import Places
from postgres_server import drop_schema

import eventkit

ROUTES = [(here, there) for here in ("sqlite", "postgres") for there in ("sqlite", "postgres")]
routes = pytest.mark.parametrize("route", ROUTES, ids=[f"{here}-to-{there}" for here, there in ROUTES])


@pytest.fixture
def places(tmp_path: Path, postgres_url: str, postgres: str) -> Iterator[Places]:
    """Return fresh databases; those on Postgres are dropped after the test."""
    places = Places(tmp_path, postgres_url)
    yield places
    for schema in places.schemas():
        drop_schema(postgres, schema)


@contextmanager
def moved(places: Places, route: tuple[str, str]) -> Iterator[tuple[eventkit.EventKit, Any]]:
    """Return a kit to fill, and a function that returns the kit of its copy."""
    here, there = (places.fresh(kind) for kind in route)
    kits: list[eventkit.EventKit] = []

    def move() -> eventkit.EventKit:
        eventkit.copy(here, there)
        kits.append(eventkit.connect(there))
        return kits[-1]

    with eventkit.connect(here) as kit:
        yield kit, move
    for copy in kits:
        copy.close()
