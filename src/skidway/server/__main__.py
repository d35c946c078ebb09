"""`python -m skidway.server`: the broker without the rest of the command line."""

import sys

from skidway.server.flags import main

sys.exit(main())
