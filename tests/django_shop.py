"""A small Django application, in a process of its own: `test_django` says on which databases, and what to try there."""

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
    """A row of the application's own."""

    name = models.CharField(max_length=100, unique=True)

    class Meta:
        """Where the model would be if this were more than one file."""

        app_label = "shop"


def fate(kit: eventkit.EventKit) -> Any:
    """Orders and events are committed and rolled back together, by whatever name the connection goes."""
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
    """What a call is refused with."""
    try:
        kit.stream("t").publish("refused", tx=connection)
    except (ValueError, eventkit.EventkitError) as error:
        return f"{type(error).__name__}: {error}"
    return "taken"


def inside(kit: eventkit.EventKit) -> str:
    """What is said within a transaction."""
    with transaction.atomic():
        return refusal(kit)


def without_atomic(kit: eventkit.EventKit) -> Any:
    """A transaction that was begun by Django's own autocommit being off is one too."""
    transaction.set_autocommit(False)
    kit.stream("t").publish("undone", tx=connection)
    transaction.rollback()
    kit.stream("t").publish("done", tx=connection)
    transaction.commit()
    transaction.set_autocommit(True)
    return [event.payload for event in kit.stream("t").read()]


def in_a_thread(kit: eventkit.EventKit) -> Any:
    """Asynchronous code has its transactions in a thread, where a sync kit takes part."""
    asyncio.run(sync_to_async(inside)(kit))
    return [event.payload for event in kit.stream("t").read()]


def awaited(kit: eventkit.EventKit) -> str:
    """What an async kit says."""

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
