"""`python -m electrify` is the same as `electrify`."""

import sys

from electrify.cli import main

if __name__ == "__main__":
    sys.exit(main())
