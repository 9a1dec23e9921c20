"""The HTTP service, as an ASGI application and as the process of ``eventkit serve``.

::

    async with eventkit.connect_async("sqlite:///shop.db") as kit:
        application = eventkit.http.app(kit)  # to be served, or mounted in FastAPI or Starlette

**The guard** runs before each route that is not ``open``.  It is a function of the connection and the route's
`routing.Access` (the right, and the kind of thing; the path parameter of that kind has the name), and raises `Refusal`
with 401, 403 or 429.  ``eventkit serve`` uses `keys.Keys`.

**Middleware** of `app` is ASGI inside the framework's routing, so ``scope["path_template"]`` is the route.  **Pages**
of `app` are further handlers of the framework.

`server` is the process, with its socket and signals; it needs ``pip install 'eventkit-db[server]'``.
"""

from .app import Guard, app
from .bodies import Problem, Refusal
from .keys import Keys
from .routing import Access
from .server import NotForOthers, serve
from .service import ServiceSettings, settings_of

__all__ = [
    "Access",
    "Guard",
    "Keys",
    "NotForOthers",
    "Problem",
    "Refusal",
    "ServiceSettings",
    "app",
    "serve",
    "settings_of",
]
