"""`skidway topic`: make, list, describe, alter, grow, trim (`trim`), move (`reassign`) and delete topics."""

import base64
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.config_names import assignment, topic_names
from skidway.cli.help.names import complete_topic
from skidway.cli.options import DryRun, Yes
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ControllerTimeout,
    connect,
    count_of,
    friendly,
    group,
    misused,
    print_json,
    print_table,
    run,
    size,
    warn,
)
from skidway.cli.reassign import reassign
from skidway.cli.trim import trim

if TYPE_CHECKING:
    from skidway.blocking_client.admin import Admin, Config, ConfigChange
    from skidway.blocking_client.cluster import Topic

app = group("Create, list, describe, alter, grow, trim, reassign and delete topics.")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="One topic or more.", autocompletion=complete_topic)]
MIN_IN_SYNC = "min.insync.replicas"


def _admin(bootstrap: str, timeout_s: float | None) -> "Admin":
    from skidway.blocking_client.admin import Admin

    return Admin(connect(bootstrap, timeout_s))


@app.command(epilog="Example: skidway topic create orders -p 6 -c retention.ms=86400000")
@friendly
def create(
    topics: Names,
    partitions: Annotated[
        int,
        typer.Option("--partitions", "-p", metavar="N", help="Partitions of the new topic. -1: the broker's default."),
    ] = -1,
    replication: Annotated[
        int,
        typer.Option("--replication", "-r", metavar="N", help="Replicas of each partition. -1: the broker's default."),
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; repeatable.")
    ] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Succeed if it exists already.")] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Create topics, and return when they can be written to."""
    from skidway.blocking_client.errors import BrokerError
    from skidway.errors import ErrorCode

    configs = dict(assignment(text) for text in config or [])
    admin = _admin(bootstrap, timeout)
    for name in topics:
        try:
            with topic_names(configs):
                admin.create_topic(
                    name, partitions=partitions, replication=replication, configs=configs, validate_only=dry_run
                )
        except BrokerError as error:
            if not (if_missing and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            typer.echo(f"{name} exists already")
            continue
        typer.echo(f"{name} could be created" if dry_run else f"created {name}")
        if not dry_run:
            _warn_of_few_replicas(admin, name)


def _warn_of_few_replicas(admin: "Admin", name: str) -> None:
    """Brokers accept it, as Kafka's do. The topic is there, so a look that fails is no failure of the command."""
    from skidway.blocking_client.errors import ClientError

    try:
        replicas = min(len(partition.replicas) for partition in admin.topic(name).partitions.values())
        configs = {config.name: config.value for config in admin.topic_configs(name)}
        wanted = int(configs.get(MIN_IN_SYNC) or 1)
    except (ClientError, ValueError):
        return
    if replicas < wanted:
        have = count_of(replicas, "replica")
        warn(f"{name} has {have}, fewer than {MIN_IN_SYNC}={wanted}: acks=all is acknowledged without the others")


@app.command("list", epilog="Example: skidway topic list --json")
@friendly
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also list the broker's own topics.")] = False,
    names_only: Annotated[bool, typer.Option("--names", "-q", help="Print only the names, one a line.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """List the topics."""
    topics = [topic for topic in _admin(bootstrap, timeout).topics() if internal or not topic.internal]
    if as_json:
        print_json([_summary(topic) for topic in topics])
    elif names_only:
        for topic in topics:
            typer.echo(topic.name)
    elif topics:
        rows = [(topic.name, len(topic.partitions), _replication(topic)) for topic in topics]
        print_table(("topic", "partitions", "replicas"), rows, right=("partitions", "replicas"))
    else:
        typer.echo("no topics yet; create one with: skidway topic create NAME", err=True)


@app.command(epilog="Example: skidway topic describe orders --configs")
@friendly
def describe(
    topics: Names,
    configs: Annotated[bool, typer.Option("--configs", help="Show all settings, not only those set here.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Show partitions, leaders, offsets, sizes and settings of topics."""
    admin = _admin(bootstrap, timeout)
    documents = [_describe(admin, name, all_configs=configs) for name in topics]
    if as_json:
        print_json(documents)
        return
    for number, document in enumerate(documents):
        if number:
            typer.echo()
        _print_description(document)


@app.command(epilog="Example: skidway topic alter orders -c retention.ms=3600000 --reset segment.bytes")
@friendly
def alter(
    topics: Names,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; repeatable.")
    ] = None,
    reset: Annotated[
        list[str] | None,
        typer.Option("--reset", metavar="NAME", help="A setting that goes back to its default; repeatable."),
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="NAME=VALUE", help="Add to a list; repeatable.")
    ] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="NAME=VALUE", help="Remove from a list; repeatable.")
    ] = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Change settings of topics."""
    changes = _changes(config or [], reset or [], append or [], subtract or [])
    if not changes:
        misused("nothing to alter; give --config NAME=VALUE or --reset NAME")
    admin = _admin(bootstrap, timeout)
    for name in topics:
        with topic_names(change.name for change in changes):
            admin.alter_topic(name, changes, validate_only=dry_run)
        typer.echo(f"{name} could be altered" if dry_run else f"altered {name}")


@app.command(epilog="Example: skidway topic grow orders 12")
@friendly
def grow(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topic)],
    partitions: Annotated[int, typer.Argument(help="The number of partitions it should have.", min=1)],
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Give a topic more partitions. Keys move: a key's new records may go to another partition than its old ones."""
    _admin(bootstrap, timeout).grow_topic(topic, partitions, validate_only=dry_run)
    typer.echo(f"{topic} {'could have' if dry_run else 'has'} {count_of(partitions, 'partition')}")


@app.command(epilog="Example: skidway topic delete orders --yes")
@friendly
def delete(
    topics: Names,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Delete topics with all their messages."""
    admin = _admin(bootstrap, timeout)
    for name in topics:
        admin.topic(name)  # a wrong name ends the command before anything is asked or deleted
    if not yes:
        typer.confirm(f"delete {', '.join(topics)} with all messages?", abort=True)
    for name in topics:
        admin.delete_topic(name)
        typer.echo(f"deleted {name}")


app.command(epilog="Example: skidway topic trim orders --before 7d --dry-run")(trim)
app.command(epilog="Example: skidway topic reassign orders --to 1,2,4 --dry-run")(reassign)


def _changes(config: list[str], reset: list[str], append: list[str], subtract: list[str]) -> "list[ConfigChange]":
    from skidway.blocking_client.admin import APPEND, DELETE, SET, SUBTRACT, ConfigChange

    changes = [ConfigChange(name, DELETE) for name in reset]
    for operation, texts in ((SET, config), (APPEND, append), (SUBTRACT, subtract)):
        changes += [ConfigChange(name, operation, value) for name, value in map(assignment, texts)]
    return changes


def _replication(topic: "Topic") -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _topic_id(topic: "Topic") -> str:
    """As Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic.id).rstrip(b"=").decode()


def _summary(topic: "Topic") -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": _topic_id(topic),
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication": _replication(topic),
    }


def _describe(admin: "Admin", name: str, *, all_configs: bool) -> dict[str, Any]:
    from skidway.blocking_client.errors import BrokerError, Unsupported
    from skidway.blocking_client.offsets import EARLIEST, LATEST, offsets_at

    unserved = admin.cluster.unserved(name, admin.topic(name).partitions)
    topic = admin.cluster.topic(name)
    served = [index for index in topic.partitions if index not in unserved]
    starts = offsets_at(admin.cluster, name, served, EARLIEST)
    ends = offsets_at(admin.cluster, name, served, LATEST)
    try:
        sizes = admin.partition_bytes(name, served)
    except (BrokerError, Unsupported):
        sizes = {}
    configs = [config for config in admin.topic_configs(name) if all_configs or config.is_set]
    partitions = [
        {
            "partition": partition.index,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replicas,
            "in_sync": partition.in_sync,
            "start_offset": starts.get(partition.index),
            "end_offset": ends.get(partition.index),
            "bytes": sizes.get(partition.index),
            "unserved": unserved.get(partition.index),
        }
        for partition in topic.partitions.values()
    ]
    return {**_summary(topic), "partitions": partitions, "configs": [_config(config) for config in configs]}


def _config(config: "Config") -> dict[str, Any]:
    return {"name": config.name, "value": config.value, "source": config.source, "read_only": config.read_only}


def _print_description(document: dict[str, Any]) -> None:
    partitions = document["partitions"]
    messages = sum((entry["end_offset"] or 0) - (entry["start_offset"] or 0) for entry in partitions)
    stored = sum(entry["bytes"] or 0 for entry in partitions)
    typer.echo(typer.style(document["name"], bold=True) + f"  id {document['id']}")
    typer.echo(f"{count_of(len(partitions), 'partition')}, {count_of(messages, 'message')}, {size(stored)} on disk")
    rows = [
        (
            entry["partition"],
            "none" if entry["leader"] < 0 else entry["leader"],
            ",".join(map(str, entry["replicas"])),
            ",".join(map(str, entry["in_sync"])),
            "?" if entry["start_offset"] is None else entry["start_offset"],
            "?" if entry["end_offset"] is None else entry["end_offset"],
            "?" if entry["bytes"] is None else size(entry["bytes"]),
        )
        for entry in partitions
    ]
    columns = ("partition", "leader", "replicas", "in sync", "start", "end", "size")
    print_table(columns, rows, right=("partition", "leader", "start", "end", "size"))
    for entry in partitions:
        if entry["unserved"]:
            warn(f"partition {entry['partition']} is not served and not counted: {entry['unserved']}")
    if document["configs"]:
        typer.echo()
        rows_of_configs = [(entry["name"], entry["value"], entry["source"]) for entry in document["configs"]]
        print_table(("setting", "value", "from"), rows_of_configs)


def main(arguments: list[str]) -> int:
    return run(app, "skidway topic", arguments)
