"""`python -m jaxmb`, the same as the command `jaxmb`."""

import sys

from jaxmb.cli import main

sys.exit(main())
