"""The contract, as tests: a backend that passes them keeps every promise of docs/contract.md.

A backend's own test file has a fixture ``url``, which gives the URL of a fresh database, and one line::

    import pytest
    from eventkit.conformance import *

    @pytest.fixture
    def url(tmp_path):
        return f"mine:///{tmp_path}/test.db"

Tests of loops, waits, transactions, sessions and cancellation run twice, with a kit of each flavour, from one body.
Elsewhere the flavours share all code but `execute`, so a sync kit is enough; `test_flavours` makes each call with
both.  A backend's features beyond the contract are declared as its `capabilities`; a test names the one it needs with
`requires`, and never names a backend.

Where SQLAlchemy can reach the database, a second fixture gives its URL, for the test's flavour::

    @pytest.fixture
    def engine_url(url, flavour):
        return url.replace("mine", "mine+driver" if flavour == "sync" else "mine+asyncdriver")

And where the database has the functions of P2 and the calls of P3, a third one runs SQL by the bare driver::

    @pytest.fixture
    def bare_sql(url):
        connection = driver.connect(...)
        return "", lambda sql: connection.execute(sql).fetchone()

A backend that has statements for a part of the operations names the clauses that it leaves out::

    @pytest.fixture
    def left_out():
        return {"O1", "O2"}
"""

from importlib import import_module
from pkgutil import iter_modules

import pytest

_tests = [module.name for module in iter_modules(__path__, f"{__name__}.") if ".test_" in module.name]

# pytest rewrites assertions only in modules registered before they are imported.
pytest.register_assert_rewrite(*_tests)

from .clauses import proves, pytest_generate_tests, requires  # noqa: E402
from .fixtures import (  # noqa: E402
    bare_sql,
    caller,
    connect,
    engine,
    engine_url,
    flavour,
    kit,
    left_out,
    loop,
    new_url,
    plain,
    promised,
)

__all__ = [
    "bare_sql",
    "caller",
    "connect",
    "engine",
    "engine_url",
    "flavour",
    "kit",
    "left_out",
    "loop",
    "new_url",
    "plain",
    "promised",
    "proves",
    "pytest_generate_tests",
    "requires",
]

for _module in _tests:
    for _name, _value in vars(import_module(_module)).items():
        if isinstance(_value, type(kit)) or (_name.startswith("test_") and callable(_value)):
            if globals().setdefault(_name, _value) is not _value:
                raise ImportError(f"two tests or fixtures of the suite are called {_name}: one would hide the other")
            if _name not in __all__:
                __all__ += [_name]
