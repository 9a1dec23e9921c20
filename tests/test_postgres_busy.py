"""Busy consumers cost publishers no notification."""

import re
import threading
import time

import psycopg

import eventkit

PATIENCE = 30.0


def test_no_waiter_is_registered_while_several_are_busy(postgres_url: str) -> None:
    """They have slept, so publishers notify at first; after a while of steady work they no longer do."""
    with eventkit.connect(postgres_url) as kit, eventkit.connect(postgres_url) as publisher:
        for _ in range(3):
            messages = kit.stream("steady").subscribe(start="latest")
            threading.Thread(target=lambda messages=messages: [None for _ in messages], daemon=True).start()
        deadline = time.monotonic() + PATIENCE
        while not registered(postgres_url):
            assert time.monotonic() < deadline, "no consumer falls asleep"
        stop = threading.Event()

        def publish() -> None:
            while not stop.is_set():
                publisher.stream("steady").publish(1)

        busy = threading.Thread(target=publish)
        busy.start()
        try:
            while registered(postgres_url):
                assert time.monotonic() < deadline, "publishers notify for as long as there is something to do"
        finally:
            stop.set()
            busy.join()


def registered(url: str) -> bool:
    """Return whether the table of sleepers has a row; the table is read ten times a second."""
    time.sleep(0.1)
    [schema] = re.findall(r"schema=(\w+)", url)
    with psycopg.connect(re.sub(r"[?&]schema=\w+", "", url)) as connection:
        return bool(connection.execute(f"SELECT name FROM {schema}.eventkit_sleeper".encode()).fetchall())
