"""The dashboard: pages for whoever is on call, made here and complete without a script.

A page is a function in the module of its noun that gathers what it shows and hands it to `viewing.page`, which renders
the template of that name.  Everything that is shown was written by somebody else and is escaped by the templates; a
policy in each answer's headers lets a browser run nothing but `static/dashboard.js`, which looks again when `live` says
that there is something new.  What changes anything is in `actions`, a form that takes the right of an administrator
(`access`) and a token against forgery.

Names of queues and topics may have any character, a slash included, so they are in the query and not in the path.
"""

from litestar import Router

from . import access, actions, live, overview, queues, schedules, signing_in, streams, tasks, viewing, workers

PAGES = (overview, queues, tasks, streams, schedules, workers, actions, signing_in, live, viewing)
"""The modules that have pages."""


def pages() -> Router:
    """All of them, for an application."""
    return Router(
        path="/",
        route_handlers=[handler for module in PAGES for handler in module.routes],
        middleware=[access.Keyed],
        exception_handlers={Exception: signing_in.excuse},
        include_in_schema=False,
    )
