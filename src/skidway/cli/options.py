"""Options that several commands have: one name, one letter and one text for one meaning, wherever it is.

`tests/tidy/test_options.py` holds all commands to that. The options of a connection are in `output`.
"""

from typing import Annotated

import typer

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: only check it and show what would happen.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it. Without this option nothing is changed.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Count = Annotated[int | None, typer.Option("--count", "-n", metavar="N", help="Stop after N messages.", min=0)]
OnlyPartitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", metavar="N", help="Only this partition; repeatable.")
]
Until = Annotated[
    str | None, typer.Option("--until", "-u", metavar="WHERE", help="Where to stop. Default: the end as it is now.")
]
