"""A small Django application in a process of its own, run by `test_django` on each database."""

import asyncio
import json
import sys
from typing import Any

import django
from django.conf import settings

GIVEN = json.loads(sys.argv[1])

settings.configure(DATABASES=GIVEN["databases"], USE_TZ=GIVEN["use_tz"])
django.setup()

from asgiref.sync import sync_to_async  # noqa: E402
from django.db import IntegrityError, connection, connections, models, transaction  # noqa: E402

import eventkit  # noqa: E402


class Order(models.Model):
    """A row of the application."""

    name = models.CharField(max_length=100, unique=True)

    class Meta:
        """The app label, which a model outside of an app has to declare."""

        app_label = "shop"


def fate(kit: eventkit.EventKit) -> Any:
    """Check that orders and events commit and roll back together, under any name of the connection."""
    stream, queue = kit.stream("t"), kit.queue("q")
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    for name, tx in (("connection", connection), ("connections[]", connections["default"])):
        try:
            with transaction.atomic():
                Order.objects.create(name="undone")
                stream.publish("undone", tx=tx)
                raise LookupError
        except LookupError:
            pass
        with transaction.atomic():
            stream.publish(name, tx=tx)
            Order.objects.create(name=name)
            try:
                with transaction.atomic():
                    stream.publish("beside", tx=tx)
                    queue.enqueue_many([1, 2], tx=tx)
                    Order.objects.create(name=name)
            except IntegrityError:
                pass
            with transaction.atomic():
                stream.publish_many([f"{name}, nested", 2], tx=tx)
            assert name not in [event.payload for event in stream.read()]
    orders = list(Order.objects.order_by("id").values_list("name", flat=True))
    with connection.schema_editor() as editor:
        editor.delete_model(Order)
    return [orders, [event.payload for event in stream.read()], queue.size()]


def refusal(kit: eventkit.EventKit) -> str:
    """Return the error of a refused call."""
    try:
        kit.stream("t").publish("refused", tx=connection)
    except (ValueError, eventkit.EventkitError) as error:
        return f"{type(error).__name__}: {error}"
    return "taken"


def inside(kit: eventkit.EventKit) -> str:
    """Return the error within a transaction."""
    with transaction.atomic():
        return refusal(kit)


def without_atomic(kit: eventkit.EventKit) -> Any:
    """Check that a transaction without atomic(), by Django's autocommit being off, works too."""
    transaction.set_autocommit(False)
    kit.stream("t").publish("undone", tx=connection)
    transaction.rollback()
    kit.stream("t").publish("done", tx=connection)
    transaction.commit()
    transaction.set_autocommit(True)
    return [event.payload for event in kit.stream("t").read()]


def in_a_thread(kit: eventkit.EventKit) -> Any:
    """Check that asynchronous code has its transactions in a thread, with a sync kit."""
    asyncio.run(sync_to_async(inside)(kit))
    return [event.payload for event in kit.stream("t").read()]


def awaited(kit: eventkit.EventKit) -> str:
    """Return the error of an async kit."""

    async def main() -> str:
        async with eventkit.connect_async(GIVEN["url"]) as kit:
            try:
                await kit.stream("t").publish("refused", tx=connection)
            except TypeError as error:
                return str(error)
        return "taken"

    return asyncio.run(main())


with eventkit.connect(GIVEN["url"]) as kit:
    print(json.dumps(globals()[GIVEN["try"]](kit)))
connections.close_all()
