"""`skidway cluster features`: show the features that the whole cluster has at one level, raise or lower a level."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.options import DryRun
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ControllerTimeout,
    connect,
    friendly,
    misused,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster

LEVEL_MAX = 32_767


@friendly
def features(
    upgrade: Annotated[
        list[str] | None,
        typer.Option("--upgrade", metavar="NAME=LEVEL", help="Raise a feature to this level; repeatable."),
    ] = None,
    downgrade: Annotated[
        list[str] | None,
        typer.Option("--downgrade", metavar="NAME=LEVEL", help="Lower a feature to this level; repeatable."),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Show the features of the cluster and their levels, or change levels: all that are named, or none."""
    if upgrade and downgrade:
        misused("--upgrade and --downgrade are two changes: make one after the other")
    if as_json and (upgrade or downgrade):
        misused("--json shows features: leave it out to change one")
    if dry_run and not (upgrade or downgrade):
        misused("--dry-run needs a change: name one with --upgrade or --downgrade")
    levels = _levels(upgrade or downgrade or [])
    cluster = connect(bootstrap, timeout)
    if not levels:
        _show(cluster, as_json=as_json)
        return
    from skidway.blocking_client.features import Change, change_features

    change_features(cluster, levels, Change.UPGRADE if upgrade else Change.DOWNGRADE, dry_run=dry_run)
    for name, level in levels.items():
        typer.echo(f"{name} {'could be at' if dry_run else 'is at'} level {level}")


def _levels(words: list[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for word in words:
        name, equals, level = (part.strip() for part in word.partition("="))
        if not name or not equals or not level.isdecimal() or int(level) > LEVEL_MAX:
            misused(f"{word!r} is not a feature and a level; expected for example transaction.version=2")
        if name in levels:
            misused(f"{name} has two levels; name it once")
        levels[name] = int(level)
    return levels


def _show(cluster: "Cluster", *, as_json: bool) -> None:
    from skidway.blocking_client.features import describe_features

    known = describe_features(cluster)
    if as_json:
        print_json([asdict(feature) for feature in known])
        return
    rows = [(each.name, str(each.level) if each.level else "-", f"{each.low} to {each.high}") for each in known]
    print_table(("feature", "level", "supported"), rows)
