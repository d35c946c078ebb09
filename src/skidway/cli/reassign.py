"""`skidway topic reassign`: move replicas to other brokers, have more or fewer of them; and what `drain` shares.

A plan is shown before it is carried out. Brokers that are named share a topic evenly; otherwise replicas that are where
they may be stay, and the rest goes where there is least.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.help.names import complete_topic
from skidway.cli.options import DryRun
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    connect,
    count_of,
    fail,
    friendly,
    misused,
    print_table,
    progress,
)

if TYPE_CHECKING:
    from skidway.blocking_client.cluster_admin import BrokerState, ClusterAdmin, Reassignment
    from skidway.blocking_client.moves import PartitionKey

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all replicas have moved.")]
MoveTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long to wait until all replicas have moved; for an answer, and for a controller, 30 at most.",
        min=0.1,
        show_default="30, and 5 for a controller",
        rich_help_panel="Connection",
    ),
]


def cluster_admin(bootstrap: str, timeout_s: float | None) -> "ClusterAdmin":
    from skidway.blocking_client.cluster_admin import ClusterAdmin

    return ClusterAdmin(connect(bootstrap, timeout_s))


def answer_s(move_timeout_s: float | None) -> float | None:
    """How long a single answer may take: who waits an hour for moves will not do so for a node that hangs."""
    return None if move_timeout_s is None else min(move_timeout_s, DEFAULT_TIMEOUT_S)


def move_s(move_timeout_s: float | None) -> float:
    """How long everything may take."""
    return DEFAULT_TIMEOUT_S if move_timeout_s is None else move_timeout_s


@friendly
def reassign(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Topics to move.", autocompletion=complete_topic)
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="N,N,…", help="The brokers to spread the replicas over.")
    ] = None,
    replication: Annotated[
        int | None, typer.Option("--replication", "-r", metavar="N", min=1, help="Replicas of each partition.")
    ] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--assign",
            metavar="P=N,N,…",
            help="Give partition P these replicas, the preferred leader first; repeatable.",
        ),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Undo moves that are under way.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show moves that are under way.")] = False,
    dry_run: DryRun = False,
    wait: Wait = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: MoveTimeout = None,
) -> None:
    """Move replicas to other brokers, or change how many there are."""
    wanted = [bool(to or replication), bool(assign), cancel, status]
    if sum(wanted) != 1:
        misused("expected one of: --to and/or --replication; --assign; --cancel; --status")
    if status and dry_run:
        misused("--status changes nothing: leave --dry-run out")
    from skidway.blocking_client.cluster import NoSuchTopic

    if (status or cancel) and not wait:
        misused(f"{'--status' if status else '--cancel'} waits for nothing: leave --no-wait out")
    if not topics and not status:
        misused("which topics? name one or more")
    admin = cluster_admin(bootstrap, answer_s(timeout))
    names = set(topics or [])
    if status or cancel:
        for name in sorted(names):
            admin.topic(name)  # of a misspelt one nothing moves, and nobody would notice
    if status:
        _show_status(admin, names)
    elif cancel:
        _cancel(admin, names, dry_run=dry_run)
    else:
        moving = admin.reassignments()
        before = targets(admin, moving)
        missing = sorted(names - {topic for topic, _ in before})
        if missing:
            raise NoSuchTopic(missing[0])
        plan = _plan_exact(admin, assign, names, before) if assign else _plan(admin, names, before, to, replication)
        under_way = {key for key in moving if key[0] in names}
        moves = Moves(plan, before, under_way, done="every replica is where it should be")
        carry_out(admin, moves, dry_run=dry_run, wait_s=move_s(timeout) if wait else None)


@dataclass(slots=True)
class Moves:
    """What a command is about to do."""

    plan: "dict[PartitionKey, list[int]]"
    before: "dict[PartitionKey, list[int]]"
    under_way: "set[PartitionKey]"
    """Moves that began earlier and have to end too."""
    done: str
    """What can be said then."""


def targets(admin: "ClusterAdmin", moving: "dict[PartitionKey, Reassignment]") -> "dict[PartitionKey, list[int]]":
    """The replicas of every partition, as they will be when all has moved that is under way."""
    wanted = {key: partition.replicas for key, partition in admin.partitions().items()}
    return wanted | {key: move.target for key, move in moving.items() if key in wanted}


def carry_out(admin: "ClusterAdmin", moves: Moves, *, dry_run: bool, wait_s: float | None) -> None:
    """Show a plan, begin it, and follow it to its end, or for `wait_s` seconds; None: not at all."""
    plan = moves.plan
    if plan:
        rows = [(*key, ids(moves.before[key]), ids(new)) for key, new in sorted(plan.items())]
        print_table(("topic", "partition", "from", "to"), rows, right=("partition",))
    if dry_run:
        typer.echo(f"{count_of(len(plan), 'partition')} would move")
        return
    if plan:
        admin.reassign(plan)
    awaited = set(plan) | moves.under_way
    if awaited and wait_s is None:
        typer.echo(
            f"moving {count_of(len(awaited), 'partition')}; skidway topic reassign --status shows which still move"
        )
        return
    if awaited and wait_s is not None:
        with progress("moving", len(awaited)) as meter:
            left = admin.await_reassignments(
                awaited, lambda left: meter.set(len(awaited) - left, f"{count_of(left, 'partition')} left"), wait_s
            )
        if left:
            text = f"{count_of(len(left), 'partition')} not moved after {wait_s:g} s; the move continues"
            command = f"skidway topic reassign {' '.join(sorted({topic for topic, _ in left}))}"
            fail(f"{text}: {command} --status shows them, {command} --cancel puts them back")
    typer.echo(moves.done)


def ids(nodes: list[int]) -> str:
    return ",".join(map(str, nodes)) or "none"


def _plan(
    admin: "ClusterAdmin",
    names: set[str],
    before: "dict[PartitionKey, list[int]]",
    to: str | None,
    replication: int | None,
) -> "dict[PartitionKey, list[int]]":
    from skidway.blocking_client.moves import NotEnoughBrokers, Place, spread

    brokers = admin.describe_cluster().brokers
    allowed = _numbers(to, "--to") if to else open_to_new(brokers)
    _refuse_absent(brokers, allowed)
    places = [Place(number, brokers[number].rack) for number in dict.fromkeys(allowed)]
    chosen = {key: replicas for key, replicas in before.items() if key[0] in names}
    elsewhere = {key: replicas for key, replicas in before.items() if key[0] not in names}
    try:
        return spread(chosen, places, replication, elsewhere, even=to is not None)
    except NotEnoughBrokers as error:
        left_out = "" if to else drained_too(brokers)
        fail(f"{error}{left_out}; name more with --to, or fewer replicas with --replication")


def open_to_new(brokers: "dict[int, BrokerState]") -> list[int]:
    """Where replicas may be put of which nobody says where."""
    return [broker.id for broker in brokers.values() if not broker.fenced and not broker.drained]


def drained_too(brokers: "dict[int, BrokerState]", *, but: int | None = None) -> str:
    """Which other brokers do not count, and why, for who thinks that there are enough."""
    others = [broker.id for broker in brokers.values() if broker.drained and broker.id != but]
    if not others:
        return ""
    return f", as broker{'s' if len(others) > 1 else ''} {ids(others)} {'are' if len(others) > 1 else 'is'} drained"


def _refuse_absent(brokers: "dict[int, BrokerState]", wanted: Iterable[int]) -> None:
    for number in wanted:
        if number not in brokers:
            fail(f"there is no broker {number}; the brokers are {', '.join(map(str, brokers))}")
        if brokers[number].fenced:
            fail(f"broker {number} is not up: start it first, or leave it out")


def _plan_exact(
    admin: "ClusterAdmin", assignments: list[str], names: set[str], before: "dict[PartitionKey, list[int]]"
) -> "dict[PartitionKey, list[int]]":
    if len(names) != 1:
        misused("--assign is for one topic at a time")
    (topic,) = names
    plan: dict[PartitionKey, list[int]] = {}
    for text in assignments:
        index, equals, replicas = text.partition("=")
        if not equals or not index.strip().isdigit():
            misused(f"--assign {text!r}: expected PARTITION=BROKER,BROKER,…, such as 0=1,2,3")
        key = topic, int(index)
        if key not in before:
            fail(f"{topic} partition {index}: there is no such partition")
        if key in plan:
            misused(f"--assign {text!r}: partition {key[1]} was given replicas already")
        plan[key] = _numbers(replicas, f"--assign {text!r}")
        for number, times in Counter(plan[key]).items():
            if times > 1:
                misused(f"--assign {text!r}: broker {number} is named {times} times, and can have one replica")
    _refuse_absent(admin.describe_cluster().brokers, (number for replicas in plan.values() for number in replicas))
    return {key: replicas for key, replicas in plan.items() if replicas != before[key]}


def _numbers(text: str, where: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        misused(f"{where}: expected numbers of brokers, such as 1,2,3, got {text!r}")
    return [int(word) for word in words]


def _show_status(admin: "ClusterAdmin", names: set[str]) -> None:
    moving = {key: move for key, move in admin.reassignments().items() if not names or key[0] in names}
    if moving:
        _print_moves(moving)
    else:
        typer.echo("no replica is moving")


def _cancel(admin: "ClusterAdmin", names: set[str], *, dry_run: bool) -> None:
    moving = {key: move for key, move in admin.reassignments().items() if key[0] in names}
    if dry_run:
        if moving:
            _print_moves(moving)
        typer.echo(f"{count_of(len(moving), 'move')} would be cancelled")
        return
    if moving:
        admin.reassign(dict.fromkeys(moving))
    typer.echo(f"cancelled {count_of(len(moving), 'move')}")


def _print_moves(moving: "dict[PartitionKey, Reassignment]") -> None:
    rows = [
        (topic, index, ids(move.replicas), ids(move.adding), ids(move.removing))
        for (topic, index), move in sorted(moving.items())
    ]
    print_table(("topic", "partition", "replicas", "adding", "removing"), rows, right=("partition",))
