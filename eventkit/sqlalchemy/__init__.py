"""Events of a SQLAlchemy session: collected while it works, written when it commits.

::

    bind(Session, kit)  # once: a sessionmaker, a class, or a session

    with Session.begin() as session:
        session.add(order)
        collect(session).stream("orders").publish({"id": 42})
        collect(session).queue("emails").enqueue({"to": "ann@example.com"})

Until the commit nothing is written, and rolling back a savepoint discards what was collected in it.  The commit takes
one statement for all events, one for all tasks and one for all notifications.  `emits` publishes an event for each
changed row of a mapped class.
"""

from .models import emits
from .session import CollectedChannel, CollectedQueue, CollectedStream, Collector, bind, collect

__all__ = ["CollectedChannel", "CollectedQueue", "CollectedStream", "Collector", "bind", "collect", "emits"]
