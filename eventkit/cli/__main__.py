"""``python -m eventkit.cli``: the same as ``eventkit``, where scripts are not on the path."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
