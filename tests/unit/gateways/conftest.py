"""The world of a node without sockets is that of the broker's tests."""

import sys
from pathlib import Path

for folder in (Path(__file__).parents[1] / "broker", Path(__file__).parents[3]):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
