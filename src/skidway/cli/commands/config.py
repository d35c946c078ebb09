"""`skidway config`: settings of brokers, of one (`--broker N`) or of the whole cluster (without it)."""

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.config_names import assignment, hinted
from skidway.cli.help.misspelt import question
from skidway.cli.help.names import complete_broker
from skidway.cli.options import DryRun
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ControllerTimeout,
    count_of,
    fail,
    friendly,
    group,
    print_json,
    print_table,
    run,
)

if TYPE_CHECKING:
    from skidway.blocking_client.admin import Config, ConfigChange
    from skidway.blocking_client.cluster_admin import ClusterAdmin

app = group("Show and change settings of one broker or of all brokers.")

Broker = Annotated[
    int | None,
    typer.Option(
        "--broker",
        metavar="N",
        help="Only this broker. Default: all of them.",
        min=0,
        autocompletion=complete_broker,
    ),
]
INHERITED = ("default", "unknown")


def _admin(bootstrap: str, timeout_s: float | None) -> "ClusterAdmin":
    from skidway.cli.reassign import cluster_admin

    return cluster_admin(bootstrap, timeout_s)


@app.command("list", epilog="Example: skidway config list --all")
@friendly
def list_configs(
    broker: Broker = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also show settings that have their default.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """List the settings that differ from their defaults, or all of them, and where each comes from."""
    found = _of_brokers(_admin(bootstrap, timeout), broker)
    rows = _rows(found, lambda config: everything or config.source not in INHERITED)
    if not rows and not as_json:
        typer.echo(f"every setting of {count_of(len(found), 'broker')} has its default; --all shows them", err=True)
        return
    _show(rows, as_json)


@app.command(epilog="Example: skidway config get log.retention.ms")
@friendly
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="One setting or more.")],
    broker: Broker = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Show the value of settings on every broker, and where each comes from."""
    found = _of_brokers(_admin(bootstrap, timeout), broker)
    known = {config.name for configs in found.values() for config in configs}
    for name in names:
        if name not in known:
            fail(_unknown(name, known))
    _show(_rows(found, lambda config: config.name in names), as_json)


@app.command("set", epilog="Example: skidway config set log.retention.ms=86400000 --broker 2")
@friendly
def set_configs(
    assignments: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="One setting or more.")],
    broker: Broker = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Change settings while the brokers run, for all of them or for one; a value for one broker wins."""
    from skidway.blocking_client.admin import SET, ConfigChange

    changes = [ConfigChange(name, SET, value) for name, value in map(assignment, assignments)]
    _alter(_admin(bootstrap, timeout), broker, changes, dry_run)


@app.command(epilog="Example: skidway config reset log.retention.ms")
@friendly
def reset(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="One setting or more.")],
    broker: Broker = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Undo `set`, for all brokers or for one: the value that the broker was started with applies again."""
    from skidway.blocking_client.admin import DELETE, ConfigChange

    _alter(_admin(bootstrap, timeout), broker, [ConfigChange(name, DELETE) for name in names], dry_run)


def _alter(admin: "ClusterAdmin", broker: int | None, changes: "list[ConfigChange]", dry_run: bool) -> None:
    with hinted((change.name for change in changes), lambda: _known_names(admin)):
        admin.alter_broker(broker, changes, validate_only=dry_run)
    where = "all brokers" if broker is None else f"broker {broker}"
    names = ", ".join(change.name for change in changes)
    typer.echo(f"{names} could be changed for {where}" if dry_run else f"changed {names} for {where}")


def _known_names(admin: "ClusterAdmin") -> list[str]:
    return [config.name for config in admin.broker_configs(next(iter(admin.cluster.refresh([]).brokers)))]


def _of_brokers(admin: "ClusterAdmin", broker: int | None) -> "dict[int, list[Config]]":
    """Each broker is asked itself: what it was started with only it knows."""
    brokers = list(admin.cluster.refresh([]).brokers) if broker is None else [broker]
    return {number: admin.broker_configs(number) for number in sorted(brokers)}


def _rows(found: "dict[int, list[Config]]", wanted: Any) -> list[dict[str, Any]]:
    """One for each value of a setting, with the brokers that have it."""
    having: dict[tuple[str, str | None, str, bool], list[int]] = defaultdict(list)
    for broker, configs in found.items():
        for config in configs:
            if wanted(config):
                value = "(hidden)" if config.sensitive else config.value
                having[config.name, value, config.source, config.read_only].append(broker)
    return [
        {"name": name, "value": value, "source": source, "read_only": read_only, "brokers": brokers}
        for (name, value, source, read_only), brokers in sorted(having.items(), key=lambda item: (item[0][0], item[1]))
    ]


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    shown = [
        (
            row["name"],
            "(not set)" if row["value"] is None else row["value"],
            row["source"],
            ",".join(map(str, row["brokers"])),
            _change(row),
        )
        for row in rows
    ]
    print_table(("setting", "value", "from", "brokers", "can change"), shown)


def _change(row: dict[str, Any]) -> str:
    return "at a restart" if row["read_only"] else "while running"


def _unknown(name: str, known: set[str]) -> str:
    return f"there is no setting {name}; {question(name, known) or 'config list --all shows them'}"


def main(arguments: list[str]) -> int:
    return run(app, "skidway config", arguments)
