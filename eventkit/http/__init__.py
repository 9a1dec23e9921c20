"""The service: eventkit for whoever speaks HTTP, as an ASGI application and as the process ``eventkit serve``.

::

    async with eventkit.connect_async("sqlite:///shop.db") as kit:
        application = eventkit.http.app(kit)  # to be served, or mounted in FastAPI or Starlette

**A route** is an async function in the module of its noun, declared by `routing.route`; the module lists it in its
``routes``, and `application.ROUTES` lists the module.  Its parameter ``service`` is the `service.Desk`, ``data`` is the
body, which `bodies` reads strictly; payloads in it are `msgspec.Raw`, text that is passed on as it is.  It answers with
one of our types, and says no with a `problems.Refusal`.

**A guard** is asked before each route that is not ``open``: `application.app` is given one function, which gets the
connection and the route's `routing.Access` (which right, on which kind of thing; the thing's name is the path's
parameter of that kind), and raises a `Refusal` with 401, 403 or 429.  That of ``eventkit serve`` is `keys.Keys`.

**Around all requests** goes the ``middleware`` of `app`: ASGI, inside the framework's routing, so that
``scope["path_template"]`` says which route it is.  **Pages** are handlers of the framework, which `app` is given as
``pages``.

`serving` is the process: its socket, its signals, and what runs beside it.  It comes with
``pip install 'eventkit-db[server]'``.
"""

from .application import Guard, app
from .keys import Keys
from .problems import Problem, Refusal
from .routing import Access
from .service import ServiceSettings, settings_of
from .serving import NotForOthers, serve

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
