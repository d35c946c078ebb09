"""`python -m skidway`: the command line."""

import sys

from skidway.cli.main import main

sys.exit(main())
