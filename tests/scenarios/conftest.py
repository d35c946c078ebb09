"""The drivers of transcripts run machines on the logs and disks that the unit tests of those machines use."""

import sys
from pathlib import Path

for folder in ("groups", "metadata", "quorum", "replica", "schedules", "shares", "shares/coordinator", "transactions"):
    path = str(Path(__file__).parents[1] / "unit" / folder)
    if path not in sys.path:
        sys.path.append(path)
