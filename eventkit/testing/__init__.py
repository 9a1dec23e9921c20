"""Help for tests of applications that use eventkit.

Time goes by when the test says so (`advance`), what is due runs when it says so (`drain`), and what is waiting can be
asserted.  None of it needs pytest; ``pytest_plugins = ["eventkit.testing.fixtures"]`` gives the fixtures for it.
"""

from .asserting import assert_enqueued, assert_published
from .clock import advance
from .draining import drain, drain_async
from .rounds import Ran

__all__ = ["Ran", "advance", "assert_enqueued", "assert_published", "drain", "drain_async"]
