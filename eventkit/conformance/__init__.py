"""The contract, as tests: a backend that passes them keeps every promise of docs/contract.md.

A backend's own test file has a fixture ``url``, which gives the URL of a fresh database, and one line::

    import pytest
    from eventkit.conformance import *

    @pytest.fixture
    def url(tmp_path):
        return f"mine:///{tmp_path}/test.db"

Every test runs twice, with a kit of each flavour, from one body.  What a backend can do beyond the contract
is declared as its `capabilities`; a test that needs one asks for it with `requires`, and never for a name.
"""

from .clauses import proves, requires
from .fixtures import connect, flavour, kit

__all__ = ["connect", "flavour", "kit", "proves", "requires"]
