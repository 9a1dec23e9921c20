"""The dashboard: HTML pages for operators, which work without scripts.

A page is a function in the module of its noun.  It collects values and passes them to `views.page`, which renders the
template of that name.  Templates escape all values, and the content security policy permits no script except
`static/dashboard.js`, which reloads the page on signals of `pages.live`.  Changes are forms of `actions`, which need
the right ``admin`` (`access`) and a CSRF token.

Names of queues and topics may contain any character, so they are in the query and not in the path.
"""

from litestar import Router

from . import access, actions, pages, queues, streams, views

PAGES = (pages, queues, streams, actions, access, views)
"""The modules with pages."""


def router() -> Router:
    """Return the router of all pages."""
    return Router(
        path="/",
        route_handlers=[handler for module in PAGES for handler in module.routes],
        middleware=[access.SessionMiddleware],
        exception_handlers={Exception: access.error_page},
        include_in_schema=False,
    )
