"""``python -m eventkit.cli``: the command without its script on the path."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
