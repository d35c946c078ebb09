"""`skidway group`: list and describe groups, move or forget their offsets, change their settings, delete them.

Consumer groups and share groups alike.
"""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.config_names import assignment, group_names
from skidway.cli.help.misspelt import question
from skidway.cli.help.names import complete_group, complete_topic
from skidway.cli.help.suggestions import with_suggestion
from skidway.cli.options import DryRun, Execute, OnlyPartitions, Yes
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    AsJson,
    Bootstrap,
    Timeout,
    count_of,
    fail,
    friendly,
    group,
    harmless,
    misused,
    print_json,
    print_table,
    run,
    warn,
)
from skidway.cli.places import EXPECTED, End, place_option
from skidway.cli.resets import Move, Shift, Target, plan
from skidway.cli.share_groups import print_share_group, share_document

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.groups import Group, Groups
    from skidway.blocking_client.lag import Lag

app = group("List, describe, reset, alter and delete consumer groups and share groups, or what they have of a topic.")

Names = Annotated[list[str], typer.Argument(metavar="GROUP", help="One group or more.", autocompletion=complete_group)]
STATES = (
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
NAMED_CLIENTS_MAX = 3
PARTITION_COLUMNS = ("topic", "partition", "committed", "end", "lag", "behind", "owner")


def _cluster(bootstrap: str, timeout_s: float) -> "Cluster":
    from skidway.blocking_client.cluster import Cluster

    return Cluster(bootstrap, client_id="skidway-cli", timeout_ms=int(timeout_s * 1000))


@app.command("list", epilog="Example: skidway group list --state Stable")
@friendly
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help=f"Only groups in this state: {', '.join(STATES)}; repeatable."),
    ] = None,
    names_only: Annotated[bool, typer.Option("--names", "-q", help="Print only the names, one a line.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the groups of all brokers."""
    from skidway.blocking_client.groups import Groups

    for name in state or []:
        if name.lower() not in {known.lower() for known in STATES}:
            misused(f"{name!r} is not a state of a group; expected {', '.join(STATES)}")
    with _cluster(bootstrap, timeout) as cluster:
        groups = Groups(cluster).all(states=state or [])
    if as_json:
        print_json(
            [{"group": one.id, "state": one.state, "type": one.type, "protocol": one.protocol} for one in groups]
        )
    elif names_only:
        for one in groups:
            typer.echo(one.id)
    elif groups:
        rows = [(one.id, one.state or "-", one.type or "-", one.protocol or "-") for one in groups]
        print_table(("group", "state", "type", "protocol"), rows)
    else:
        typer.echo(f"no groups in state {' or '.join(state)}" if state else "no groups", err=True)


@app.command(epilog="Example: skidway group describe billing --json")
@friendly
def describe(
    groups: Names,
    configs: Annotated[bool, typer.Option("--configs", help="Show all settings, not only those set here.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the members of groups, and for each partition its owner, offsets and lag in messages and in time.

    Behind is the age of the first message that the group has not consumed.

    Of a share group it shows where delivery starts, how many messages are locked, how often those that are not settled
    were delivered (1:480 2:3 is 480 once and 3 twice), and the age of the oldest of them.
    """
    from skidway.blocking_client.errors import BrokerError

    documents: list[dict[str, Any]] = []
    failures: list[str] = []
    with _cluster(bootstrap, timeout) as cluster:
        for name in groups:
            try:
                documents.append(_describe(cluster, name, all_configs=configs))
            except BrokerError as error:
                failures.append(with_suggestion(error, bootstrap))
    if as_json:
        print_json(documents)
    else:
        for number, document in enumerate(documents):
            if number:
                typer.echo()
            _print_description(document)
    if failures:
        fail("; ".join(failures))


@app.command(epilog="Example: skidway group reset billing --to 2026-01-31T12:00 --topic orders --execute")
@friendly
def reset(
    name: Annotated[
        str, typer.Argument(metavar="GROUP", help="The group. It must have no members.", autocompletion=complete_group)
    ],
    to: Annotated[str | None, typer.Option("--to", metavar="WHERE", help=f"earliest, latest; or {EXPECTED}.")] = None,
    shift: Annotated[
        int | None,
        typer.Option("--shift", metavar="±N", help="Move by N messages: forwards, or backwards if negative."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Only this topic; repeatable. Default: all with a committed offset.",
            autocompletion=complete_topic,
        ),
    ] = None,
    partition: OnlyPartitions = None,
    share: Annotated[
        bool, typer.Option("--share", help="It is a share group: if it is not there, it is created.")
    ] = False,
    execute: Execute = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Move the committed offsets of a group, or the start offsets of a share group.

    Without --execute it only shows the change.
    """
    from skidway.blocking_client.groups import Groups
    from skidway.blocking_client.share_groups import ShareGroups

    if execute and dry_run:
        misused("--execute and --dry-run contradict each other: give one of them")
    target = _target(to, shift)
    with _cluster(bootstrap, timeout) as cluster:
        groups = Groups(cluster)
        is_share = _refuse_live(groups, name, share=share, known=bool(topic))
        if is_share:
            current = {place: found.start for place, found in ShareGroups(cluster).offsets(name).items()}
        else:
            current = {place: found.offset for place, found in groups.committed(name).items()}
        moves = plan(cluster, current, name, target, topic or [], partition or [])
        if execute:
            chosen = {(move.topic, move.partition): move.new for move in moves}
            if is_share:
                ShareGroups(cluster).alter(name, chosen)
            else:
                groups.commit(name, chosen)
    if as_json:
        print_json({"group": name, "executed": execute, "partitions": [_move_document(move) for move in moves]})
        return
    _print_moves(moves)
    done = f"group {name} reset" if execute else "dry run: nothing was changed; --execute does it"
    typer.echo(harmless(done))


@app.command(epilog="Example: skidway group forget resizers --topic pictures --execute")
@friendly
def forget(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=complete_group)],
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="What to forget; repeatable.", autocompletion=complete_topic
        ),
    ],
    execute: Execute = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete the offsets that a group has of single topics: who reads them again begins as a new group does.

    A share group must have no members; of a consumer group none may be subscribed to the topics. Without --execute it
    only shows what would be deleted.
    """
    from skidway.blocking_client.groups import Groups
    from skidway.blocking_client.share_groups import ShareGroups

    if execute and dry_run:
        misused("--execute and --dry-run contradict each other: give one of them")
    refusals: dict[str, str] = {}
    with _cluster(bootstrap, timeout) as cluster:
        groups = Groups(cluster)
        found = groups.describe(name)
        is_share = found.type == "share"
        if is_share:
            _refuse_members(found)
            offsets = {place: each.start for place, each in ShareGroups(cluster).offsets(name).items()}
        else:
            offsets = {place: each.offset for place, each in groups.committed(name).items()}
        chosen = {place: offset for place, offset in sorted(offsets.items()) if place[0] in topic}
        _check_known(name, topic, {place[0] for place in offsets})
        if execute:
            refusals = ShareGroups(cluster).forget(name, topic) if is_share else groups.forget(name, chosen)
    if as_json:
        document = [
            {"topic": place[0], "partition": place[1], "offset": offset, "error": refusals.get(place[0])}
            for place, offset in chosen.items()
        ]
        print_json({"group": name, "executed": execute, "partitions": document})
    else:
        rows = [(*place, offset) for place, offset in chosen.items() if place[0] not in refusals]
        print_table(("topic", "partition", "offset"), rows, right=("partition", "offset"))
        if not execute:
            typer.echo("dry run: nothing was changed; --execute does it")
        elif rows:
            typer.echo(harmless(f"group {name} has forgotten that"))
    if refusals:
        fail("; ".join(refusals.values()), EXIT_INCOMPLETE if len(refusals) < len(set(topic)) else EXIT_FAILED)


def _refuse_members(found: "Group") -> None:
    if found.live:
        reason = "a share group forgets topics only while it has no members; stop them first"
        fail(f"group {found.id} is in use: {found.state}, {who(found)}; {reason}")


def _check_known(name: str, topics: list[str], known: set[str]) -> None:
    """Before anything is deleted."""
    unknown = next((topic for topic in topics if topic not in known), None)
    if unknown is not None:
        meant = question(unknown, known)
        fail(f"group {name} has no offsets of topic {unknown}; {meant or 'skidway group describe shows those it has'}")


@app.command(epilog="Example: skidway group alter resizers -c share.record.lock.duration.ms=60000")
@friendly
def alter(
    groups: Names,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="A group setting; repeatable.")
    ] = None,
    reset: Annotated[
        list[str] | None,
        typer.Option("--reset", metavar="NAME", help="A setting that goes back to its default; repeatable."),
    ] = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Change settings of groups. A group need not exist yet."""
    from skidway.blocking_client.admin import DELETE, SET, Admin, ConfigChange

    changes = [ConfigChange(name, SET, value) for name, value in map(assignment, config or [])]
    changes += [ConfigChange(name, DELETE) for name in reset or []]
    if not changes:
        misused("nothing to alter; give --config NAME=VALUE or --reset NAME")
    with _cluster(bootstrap, timeout) as cluster:
        for name in groups:
            with group_names(change.name for change in changes):
                Admin(cluster).alter_group(name, changes, validate_only=dry_run)
            typer.echo(f"{name} could be altered" if dry_run else f"altered {name}")


@app.command(epilog="Example: skidway group delete billing --yes")
@friendly
def delete(
    groups: Names,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete groups that have no members, with their offsets."""
    from skidway.blocking_client.errors import BrokerError
    from skidway.blocking_client.groups import Groups

    failures: list[str] = []
    with _cluster(bootstrap, timeout) as cluster:
        if not yes:
            for name in groups:
                Groups(cluster).describe(name)  # a wrong name ends the command before anything is asked
            typer.confirm(f"delete {', '.join(groups)} with all offsets?", abort=True)
        for name in groups:
            try:
                Groups(cluster).delete(name)
            except BrokerError as error:
                failures.append(with_suggestion(error, bootstrap))
            else:
                typer.echo(f"deleted {name}")
    if failures:
        fail("; ".join(failures))


def _target(to: str | None, shift: int | None) -> Target:
    if (to is None) == (shift is None):
        misused("give either --to WHERE or --shift ±N")
    if shift is not None:
        return Shift(shift)
    return place_option(to, End())


def _refuse_live(groups: Any, name: str, *, share: bool, known: bool) -> bool:
    """Whether it is a share group. Members would go on from where they are and commit over it: brokers refuse that, and
    here is why."""
    from skidway.blocking_client.groups import NoSuchGroup

    try:
        found: Group = groups.describe(name)
    except NoSuchGroup:
        if not known:
            raise
        return share
    if share and found.type != "share":
        fail(f"group {name} is not a share group, it is a {found.type} group; leave --share out")
    if found.live:
        reason = (
            "a share group is moved only while it has no members; stop them first"
            if found.type == "share"
            else "its members would overwrite the reset with their commits; stop them first"
        )
        if any(member.instance_id is not None for member in found.members):
            reason += " (one with an instance id stays for its session timeout)"
        fail(f"group {name} is in use: {found.state}, {who(found)}; {reason}")
    return found.type == "share"


def who(group: "Group") -> str:
    """How many members there are, and the clients of some."""
    if not group.members:
        return "members are joining and leaving"
    clients = sorted({f"{member.client_id} at {member.host}" for member in group.members})
    more = len(clients) - NAMED_CLIENTS_MAX
    named = ", ".join(clients[:NAMED_CLIENTS_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"{count_of(len(group.members), 'member')} ({named})"


def _describe(cluster: "Cluster", name: str, *, all_configs: bool) -> dict[str, Any]:
    from skidway.blocking_client.groups import Groups

    groups = Groups(cluster)
    found = groups.describe(name)
    document = _members_document(found)
    document |= share_document(cluster, found) if found.type == "share" else _lags_document(cluster, groups, found)
    document["configs"] = _configs(cluster, found, all_configs=all_configs)
    return document


def _configs(cluster: "Cluster", found: "Group", *, all_configs: bool) -> list[dict[str, Any]]:
    """Of its kind: a share group has no use for `consumer.…`, and it alone has dead letters."""
    from skidway.blocking_client.admin import Admin
    from skidway.blocking_client.errors import ClientError

    try:
        configs = Admin(cluster).group_configs(found.id)
    except ClientError:
        if all_configs:
            raise
        return []  # Kafka has settings of groups from 3.8 on
    kinds = ("share.", "errors.") if found.type == "share" else (f"{found.type}.",)
    return [
        {"name": config.name, "value": config.value, "source": config.source}
        for config in configs
        if config.name.startswith(kinds) and (all_configs or config.source == "group")
    ]


def _members_document(found: "Group") -> dict[str, Any]:
    return {
        "group": found.id,
        "state": found.state,
        "type": found.type,
        "protocol": found.protocol,
        "assignor": found.assignor,
        "coordinator": str(found.coordinator),
        "members": [
            {
                "member": member.id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": len(member.partitions),
            }
            for member in sorted(found.members, key=lambda member: (member.client_id, member.id))
        ],
    }


def _lags_document(cluster: "Cluster", groups: "Groups", found: "Group") -> dict[str, Any]:
    from skidway.blocking_client.lag import measure

    lags = measure(cluster, found, groups.committed(found.id))
    now_ms = time.time_ns() // 1_000_000
    return {
        "lag": sum(lag.messages or 0 for lag in lags),
        "behind_s": max((lag.seconds(now_ms) or 0.0 for lag in lags), default=0.0),
        "partitions": [_lag_document(lag, now_ms) for lag in lags],
    }


def _lag_document(lag: "Lag", now_ms: int) -> dict[str, Any]:
    return {
        "topic": lag.topic,
        "partition": lag.partition,
        "owner": lag.owner.id if lag.owner else None,
        "committed": lag.committed,
        "start": lag.start,
        "end": lag.end,
        "lag": lag.messages,
        "behind_s": lag.seconds(now_ms),
        "first_unconsumed_ms": lag.first_unconsumed_ms,
        "deleted_unread": lag.deleted,
        "problem": lag.problem,
    }


def _print_description(document: dict[str, Any]) -> None:
    if document["type"] == "share":
        print_share_group(document, age)
    else:
        _print_group(document)
    if document["configs"]:
        rows = [(config["name"], config["value"], config["source"]) for config in document["configs"]]
        print_table(("setting", "value", "from"), rows)


def _print_group(document: dict[str, Any]) -> None:
    members = document["members"]
    first = (document["group"], document["state"], document["type"], document["assignor"])
    typer.echo(harmless("  ".join(first)).rstrip())
    typer.echo(headline(document))
    if document["partitions"]:
        rows = [
            tuple(
                age(entry["behind_s"]) if column == "behind" else "-" if entry[column] is None else entry[column]
                for column in PARTITION_COLUMNS
            )
            for entry in document["partitions"]
        ]
        print_table(PARTITION_COLUMNS, rows, right=PARTITION_COLUMNS[1:6])
    if members:
        columns = ("member", "instance", "client", "host", "partitions")
        rows = [
            tuple(member[column] if member[column] is not None else "-" for column in columns) for member in members
        ]
        print_table(columns, rows, right=("partitions",))
    for entry in document["partitions"]:
        if entry["deleted_unread"]:
            gone = count_of(entry["deleted_unread"], "message")
            warn(f"{entry['topic']} partition {entry['partition']}: {gone} deleted before the group read them")
        if entry["problem"]:
            warn(f"{entry['topic']} partition {entry['partition']}: {entry['problem']}")


def headline(document: dict[str, Any]) -> str:
    behind = f", {age(document['behind_s'])} behind" if document["lag"] else ""
    # What is missing there depends on where the owner begins, which nobody else knows.
    unread = sum(entry["committed"] is None and entry["end"] != entry["start"] for entry in document["partitions"])
    uncommitted = f" and {count_of(unread, 'partition')} without a commit" if unread else ""
    members = count_of(len(document["members"]), "member")
    return f"{members}, lag {document['lag']}{uncommitted}{behind}, coordinator {document['coordinator']}"


def age(seconds: float | None) -> str:
    """1.5s, 12m, 3.4h, 2.1d; `-` where nobody knows."""
    if seconds is None:
        return "-"
    for limit, unit, divisor in ((60, "s", 1), (3600, "m", 60), (86400, "h", 3600)):
        if seconds < limit:
            return f"{seconds / divisor:.3g}{unit}"
    return f"{seconds / 86400:.1f}d"


def _move_document(move: Move) -> dict[str, Any]:
    return {"topic": move.topic, "partition": move.partition, "from": move.old, "to": move.new, "note": move.note}


def _print_moves(moves: list[Move]) -> None:
    rows = [
        (move.topic, move.partition, "-" if move.old is None else move.old, move.new, move.change, move.note)
        for move in moves
    ]
    print_table(
        ("topic", "partition", "from", "to", "change", "note"), rows, right=("partition", "from", "to", "change")
    )


def main(arguments: list[str]) -> int:
    return run(app, "skidway group", arguments)
