"""`bench` is not an installed package: it is found from the root of the tree, as `python -m bench` finds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
