"""What does ``python -m redisworld`` do? The same as the console script."""

import sys

from redisworld.cli import main

if __name__ == "__main__":
    sys.exit(main())
