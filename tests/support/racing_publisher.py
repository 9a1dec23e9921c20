"""A process in the race of the no-skip tests: it publishes and notifies in every way that Postgres knows."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
from psycopg import IsolationLevel
from psycopg.sql import SQL, Identifier

import eventkit

Sent = tuple[str, str, int]
"""A sent message: ``event`` or ``notification``, the topic or channel, and the number."""

NAMES = ("raced 0", "raced 1")
"""The topics and channels that all publishers use."""

_TABLES = {"event": ("eventkit_event", "topic"), "notification": ("eventkit_notification", "channel")}


class Publisher:
    """A publisher that sends at random and records what was committed."""

    def __init__(self, url: str, writer: int) -> None:
        self.committed: list[Sent] = []
        self.ways: Counter[str] = Counter()
        self._chance = random.Random(writer)
        self._writer = writer
        self._number = 0
        self._kit = eventkit.connect(f"{url}&max_size=2")
        self._schema = parse_qs(urlsplit(url).query)["schema"][0]
        self._driver = psycopg.connect(url.partition("?")[0])

    def run(self, seconds: float) -> None:
        """Publish for *seconds*."""
        ways: list[Callable[[], None]] = [self._alone, self._in_transaction, self._in_transaction, self._prepared]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._chance.choice(ways)()
            self._linger()
        self._driver.close()
        self._kit.close()

    def _alone(self) -> None:
        self.committed += self._send(None)

    def _in_transaction(self) -> None:
        self._driver.isolation_level = self._chance.choice(list(IsolationLevel))
        commit = self._chance.random() < 0.7
        with suppress(psycopg.errors.SerializationFailure):
            sent = self._several()
            if commit:
                self._driver.commit()
                self.committed += sent
        self._driver.rollback()

    def _prepared(self) -> None:
        if self._chance.random() < 0.7:
            return
        self._driver.isolation_level = None
        self._driver.tpc_begin(self._driver.xid(1, f"{self._schema} {self._writer} {self._number}", "race"))
        self._driver.execute("SET LOCAL eventkit.notify_off = 'on'")
        sent = self._several()
        self._driver.tpc_prepare()
        self._linger()
        if self._chance.random() < 0.7:
            self._driver.tpc_commit()
            self.committed += sent
            self.ways["prepared"] += 1
        else:
            self._driver.tpc_rollback()

    def _several(self) -> list[Sent]:
        """Send several messages in the open transaction; return those that were not rolled back."""
        sent: list[Sent] = []
        for _ in range(self._chance.randint(1, 4)):
            self._linger()
            match self._chance.random():
                case chance if chance < 0.25:
                    sent += self._in_savepoint()
                case chance if chance < 0.3:
                    sent += self._broadly()
                case chance if chance < 0.45:
                    sent += self._plainly()
                case _:
                    sent += self._send(self._driver)
        return sent

    def _in_savepoint(self) -> list[Sent]:
        self._driver.execute("SAVEPOINT inner_part")
        sent = self._send(self._driver)
        if self._chance.random() < 0.3:
            sent += self._in_savepoint()
        if self._chance.random() < 0.6:
            self._driver.execute("ROLLBACK TO inner_part")
            self.ways["rolled back to a savepoint"] += 1
            sent = self._send(self._driver) if self._chance.random() < 0.8 else []
        self._driver.execute("RELEASE inner_part")
        return sent

    def _broadly(self) -> list[Sent]:
        """Publish to more topics than a transaction has marks."""
        self.ways["broad"] += 1
        sent = [*self._send(self._driver)]
        for side in range(40):
            self._kit.stream(f"side {side}").publish(None, tx=self._driver)
        return sent + self._send(self._driver)

    def _plainly(self) -> list[Sent]:
        """Publish by a plain INSERT without an id."""
        self.ways["plain"] += 1
        sent = self._next()
        table, column = _TABLES[sent[0]]
        insert = SQL("INSERT INTO {} ({}, payload) VALUES (%s, %s)").format(
            Identifier(self._schema, table), Identifier(column)
        )
        self._driver.execute(insert, (sent[1], json.dumps([self._writer, sent[2]])))
        return [sent]

    def _send(self, tx: Any) -> list[Sent]:
        sent = self._next()
        kind, name, number = sent
        if kind == "notification":
            self._kit.channel(name).notify([self._writer, number], tx=tx)
        elif self._chance.random() < 0.2:
            further = [(kind, name, number), (kind, name, number + 1)]
            self._number += 1
            self._kit.stream(name).publish_many([[self._writer, number] for _, _, number in further], tx=tx)
            return further
        else:
            self._kit.stream(name).publish([self._writer, number], tx=tx)
        return [sent]

    def _next(self) -> Sent:
        self._number += 1
        return self._chance.choice(("event", "event", "notification")), self._chance.choice(NAMES), self._number

    def _linger(self) -> None:
        if self._chance.random() < 0.6:
            time.sleep(self._chance.random() ** 3 * 0.02)


def publish_in_every_way(url: str, writer: int, seconds: float) -> tuple[list[Sent], Counter[str]]:
    """Publish at random; return what was committed, and how often each rarer way was used."""
    publisher = Publisher(url, writer)
    publisher.run(seconds)
    return publisher.committed, publisher.ways


def publish_slowly(url: str, writer: int, count: int, seconds: float) -> list[Sent]:
    """Publish *count* events one by one in one transaction that stays open for at least *seconds*."""
    pieces = 100
    schema = parse_qs(urlsplit(url).query)["schema"][0]
    with psycopg.connect(url.partition("?")[0]) as driver:
        publish = SQL("SELECT {}(%s, json_build_array(%s::int, n)) FROM generate_series(%s::int, %s::int) AS n").format(
            Identifier(schema, "eventkit_publish")
        )
        for piece in range(pieces):
            first, last = 1 + count * piece // pieces, count * (piece + 1) // pieces
            driver.execute(publish, (NAMES[1], writer, first, last))
            time.sleep(seconds / pieces)
    return [("event", NAMES[1], number) for number in range(1, count + 1)]
