"""``tx=`` with Django's connections (G4, G5)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from psycopg.conninfo import conninfo_to_dict

from eventkit.conformance import proves

SHOP = Path(__file__).parent / "support" / "django_shop.py"


class Shop:
    """The application in ``django_shop.py``, with a kit beside it."""

    def __init__(self, url: str, database: dict[str, Any]) -> None:
        self.url = url
        self.database = database

    def __call__(self, what: str, *, use_tz: bool = True, url: str | None = None) -> Any:
        """Return the result of one of its functions, called in a new process."""
        given = {"try": what, "url": url or self.url, "use_tz": use_tz, "databases": {"default": self.database}}
        ran = subprocess.run((sys.executable, str(SHOP), json.dumps(given)), capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Shop:
    """Return a shop on SQLite, whose kit uses Python's library as Django does."""
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{tmp_path}/shop.db"}
    return Shop(f"sqlite+pysqlite:///{tmp_path}/shop.db", database)


@pytest.fixture
def on_postgres(postgres_url: str) -> Shop:
    """Return a shop on Postgres with psycopg."""
    parts = conninfo_to_dict(postgres_url.partition("schema=")[0].rstrip("?&"))
    names = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    database = {names[name]: value for name, value in parts.items() if name in names}
    return Shop(postgres_url, {"ENGINE": "django.db.backends.postgresql", **database})


@pytest.fixture(params=["on_sqlite", "on_postgres"])
def shop(request: pytest.FixtureRequest) -> Shop:
    """Return the application on either database."""
    found: Shop = request.getfixturevalue(request.param)
    return found


@proves("G4")
@pytest.mark.parametrize("use_tz", [True, False])
def test_a_call_shares_the_fate_of_the_rows(shop: Shop, use_tz: bool) -> None:
    """Calls inside ``transaction.atomic()`` commit or roll back with it, nested ones as savepoints."""
    names = ["connection", "connections[]"]
    events = [event for name in names for event in (name, f"{name}, nested", 2)]
    assert shop("fate", use_tz=use_tz) == [names, events, 0]


@proves("G4", "G13")
def test_without_a_transaction_it_is_refused(shop: Shop) -> None:
    """The message names how to begin one."""
    assert "ValueError: tx= is Django's connection 'default' without an open" in (said := shop("refusal"))
    assert "transaction.atomic()" in said


@proves("G4")
def test_a_transaction_that_autocommit_began(shop: Shop) -> None:
    """A transaction begun by autocommit being off is one as well."""
    assert shop("without_atomic") == ["done"]


@proves("G4")
def test_asynchronous_code_goes_through_a_thread(shop: Shop) -> None:
    """Django's own transactions are blocking: an async kit refuses the connection with that reason."""
    assert shop("in_a_thread") == ["refused"]
    assert shop("awaited").startswith("Django has no asynchronous transactions: use a kit of eventkit.connect()")


@proves("G5")
def test_beside_a_kit_on_apsw_it_is_refused(on_sqlite: Shop) -> None:
    """Two SQLite libraries on one file would lose rows; the message names the URL that uses one."""
    said = on_sqlite("inside", url=on_sqlite.url.replace("+pysqlite", ""))
    assert said.startswith("ForeignTransaction: ")
    assert unquote(said).endswith(f"connect the kit to {on_sqlite.url}")


@proves("G5")
def test_another_database_is_refused(on_sqlite: Shop, on_postgres: Shop, postgres: str, tmp_path: Path) -> None:
    """A database of the other kind, another file, or another database of the same server is refused."""
    assert "which is not an SQLite file (postgresql)" in on_postgres("inside", url=on_sqlite.url)
    assert "which is not Postgres (sqlite)" in on_sqlite("inside", url=on_postgres.url)
    elsewhere = f"sqlite:///{tmp_path}/other.db"
    assert f"belongs to the database {tmp_path}/shop.db" in on_sqlite("inside", url=elsewhere)
    assert on_postgres("inside") == "taken"
    on_postgres.database["NAME"] = "postgres"
    assert "ForeignTransaction: tx= belongs to the database 'postgres'" in on_postgres("inside")
