"""Durable event streams, a task queue and notifications inside the database an application already has.

::

    kit = eventkit.connect("sqlite:///shop.db")
    kit.stream("orders").publish({"id": 42})

Read `eventkit.protocols` first.

Names are imported at their first use.  `__init__.pyi` lists them, for type checkers and for this module.
"""

from importlib import import_module

__version__ = "0.1.0"

_STUB = __spec__.loader.get_data(f"{__path__[0]}/__init__.pyi").decode()
# Each line is "from .module import Name as Name".
_MODULES = {words[3]: words[1] for line in _STUB.splitlines() if (words := line.split())[:1] == ["from"]}

__all__ = sorted(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module 'eventkit' has no {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name], __name__), name)
    return value


def __dir__():
    return sorted({*globals(), *_MODULES})
