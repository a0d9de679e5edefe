"""Entry point of `python -m xlflax.cli`."""

import sys

from xlflax import cli

if __name__ == '__main__':
  sys.exit(cli.main())
