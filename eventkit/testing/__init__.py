"""Help for tests of applications that use eventkit.

The test moves the clock (`advance`), runs due work (`drain`), and asserts what is waiting.  None of it needs pytest;
``pytest_plugins = ["eventkit.testing.fixtures"]`` provides fixtures.
"""

from .asserting import advance, assert_enqueued, assert_published
from .drain import Ran, drain, drain_async

__all__ = ["Ran", "advance", "assert_enqueued", "assert_published", "drain", "drain_async"]
