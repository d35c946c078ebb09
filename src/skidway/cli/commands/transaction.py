"""`skidway transaction`: list and describe transactions, abort them, find those that hang."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.commands.group import age
from skidway.cli.help.names import complete_topic, complete_transactional_id
from skidway.cli.help.suggestions import with_suggestion
from skidway.cli.options import Yes
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
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
)
from skidway.cli.places import parse_age_ms

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.transaction_admin import OpenTransaction, Transaction, TransactionAdmin

app = group("List, describe and abort transactions, and find those that hang.")

Ids = Annotated[
    list[str],
    typer.Argument(metavar="ID", help="One transactional id or more.", autocompletion=complete_transactional_id),
]
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
HANGING_COLUMNS = ("topic", "partition", "producer id", "epoch", "first offset", "last write")


def _cluster(bootstrap: str, timeout_s: float) -> "Cluster":
    from skidway.blocking_client.cluster import Cluster

    return Cluster(bootstrap, client_id="skidway-cli", timeout_ms=int(timeout_s * 1000))


@app.command("list", epilog="Example: skidway transaction list --state Ongoing --longer 1m")
@friendly
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help=f"Only transactions in this state: {', '.join(STATES)}; repeatable."
        ),
    ] = None,
    longer: Annotated[
        str | None, typer.Option("--longer", metavar="AGE", help="Only those that are open for longer, such as 10m.")
    ] = None,
    match: Annotated[
        str | None,
        typer.Option("--match", metavar="REGEX", help="Only ids that match this regular expression (RE2) as a whole."),
    ] = None,
    names_only: Annotated[bool, typer.Option("--names", "-q", help="Print only the names, one a line.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the transactional ids of all brokers."""
    from skidway.blocking_client.transaction_admin import TransactionAdmin

    states = [_state(name) for name in state or []]
    _check_pattern(match)
    longer_than_ms = -1 if longer is None else _age_ms(longer)
    if longer is not None and not states:
        states = ["Ongoing", "PrepareCommit", "PrepareAbort"]  # brokers take what is not open for very old
    with _cluster(bootstrap, timeout) as cluster:
        found = TransactionAdmin(cluster).all(states=states, longer_than_ms=longer_than_ms, pattern=match)
    if as_json:
        print_json(
            [
                {
                    "transactional_id": one.id,
                    "state": one.state,
                    "producer_id": one.producer_id,
                    "coordinator": str(one.coordinator),
                }
                for one in found
            ]
        )
    elif names_only:
        for one in found:
            typer.echo(harmless(one.id))
    elif found:
        rows = [(one.id, one.state, one.producer_id, one.coordinator) for one in found]
        print_table(("id", "state", "producer id", "coordinator"), rows, right=("producer id",))
    else:
        typer.echo("no transaction matches" if state or longer or match else "no transactions", err=True)


@app.command(epilog="Example: skidway transaction describe copy-orders --json")
@friendly
def describe(
    ids: Ids,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the state of transactional ids, and the partitions of what is open.

    While a transaction ends, these are the partitions that still lack its marker.
    """
    from skidway.blocking_client.errors import BrokerError
    from skidway.blocking_client.transaction_admin import TransactionAdmin

    _check_ids(ids)
    found: list[Transaction] = []
    failures: list[str] = []
    with _cluster(bootstrap, timeout) as cluster:
        for name in ids:
            try:
                found.append(TransactionAdmin(cluster).describe(name))
            except BrokerError as error:
                failures.append(with_suggestion(error, bootstrap))
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        print_json([_document(one, now_ms) for one in found])
    else:
        for number, one in enumerate(found):
            if number:
                typer.echo()
            _print_description(one, now_ms)
    if failures:
        fail("; ".join(failures))


@app.command(
    epilog="Examples:\n\nskidway transaction abort copy-orders\n\n"
    "skidway transaction abort --topic orders --partition 3 --yes"
)
@friendly
def abort(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Transactional ids.", autocompletion=complete_transactional_id),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Instead of ids: abort what hangs in a partition of this topic.",
            autocompletion=complete_topic,
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", help="The partition, with --topic.", min=0)
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Abort the open transactions of ids, or those that hang in a partition.

    The producer that uses the id is fenced: it has to be started again.
    """
    from skidway.blocking_client.transaction_admin import TransactionAdmin

    if bool(ids) == (topic is not None) or (topic is None) != (partition is None):
        misused("give either ids, or --topic and --partition")
    _check_ids(ids or [])
    with _cluster(bootstrap, timeout) as cluster:
        admin = TransactionAdmin(cluster)
        if topic is None or partition is None:
            _abort_ids(admin, ids or [], yes=yes)
        else:
            _abort_hanging(admin, topic, partition, yes=yes)


@app.command(epilog="Example: skidway transaction hanging --topic orders")
@friendly
def hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Only this topic; repeatable. Default: all, internal ones too.",
            autocompletion=complete_topic,
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Find transactions that a partition has open and no coordinator knows.

    Nobody will end them, and readers of what is committed stop in front of them. The exit code is 1 if there are any.
    """
    from skidway.blocking_client.transaction_admin import TransactionAdmin

    with _cluster(bootstrap, timeout) as cluster:
        names = topic or sorted(cluster.refresh().topics)
        places = [(name, number) for name in names for number in cluster.topic(name).partitions]
        found = TransactionAdmin(cluster).hanging(places)
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        print_json([_hanging_document(one) for one in found])
    elif found:
        print_table(
            HANGING_COLUMNS,
            [(*one.place, one.producer_id, one.epoch, one.first_offset, _ago(one.last_ms, now_ms)) for one in found],
            right=HANGING_COLUMNS[1:5],
        )
    else:
        typer.echo(f"nothing hangs in {count_of(len(places), 'partition')}", err=True)
    if found and not as_json:
        where, partition = found[0].place
        typer.echo(harmless(f"to end it: skidway transaction abort --topic {where} --partition {partition}"), err=True)
    if found:
        raise typer.Exit(1)


def _abort_ids(admin: "TransactionAdmin", ids: list[str], *, yes: bool) -> None:
    described = [admin.describe(name) for name in ids]  # a wrong name ends the command before anything is asked
    if not yes:
        typer.confirm(f"abort what is open under {', '.join(ids)}, and fence its producers?", abort=True)
    for one in described:
        admin.abort(one)
        typer.echo(harmless(f"{one.id}: {_what_became_of(one)}, its producer is fenced"))


def _what_became_of(one: "Transaction") -> str:
    """`one` as it was before it was aborted."""
    if one.state == "PrepareCommit":
        return "too late to abort, it is committed"
    return f"aborted in {count_of(len(one.places), 'partition')}" if one.open else "nothing was open"


def _abort_hanging(admin: "TransactionAdmin", topic: str, partition: int, *, yes: bool) -> None:
    admin.cluster.leader(topic, partition)  # a wrong name says so in its own words
    found = admin.hanging([(topic, partition)])
    if not found:
        open_ones = admin.open_in([(topic, partition)])
        count = count_of(len(open_ones), "open transaction")
        known = f"; the coordinator will end the {count} there" if open_ones else ""
        fail(f"no transaction hangs in {topic} partition {partition}{known}")
    if not yes:
        producers = ", ".join(str(one.producer_id) for one in found)
        typer.confirm(f"abort what producer ids {producers} have open in {topic} partition {partition}?", abort=True)
    for one in found:
        admin.abort_in_partition(one)
        where = f"{topic} partition {partition} from offset {one.first_offset} on"
        typer.echo(harmless(f"aborted what producer id {one.producer_id} had open in {where}"))


def _state(name: str) -> str:
    known = {one.lower(): one for one in STATES}
    if name.lower() not in known:
        misused(f"{name!r} is not a state of a transaction; expected {', '.join(STATES)}")
    return known[name.lower()]


def _check_pattern(expression: str | None) -> None:
    """Brokers say only that it is wrong, not what about it."""
    from skidway.errors import InvalidRegularExpression
    from skidway.groups.consumer.patterns import Pattern

    try:
        if expression:
            Pattern(expression)
    except InvalidRegularExpression as error:
        misused(str(error))


def _check_ids(ids: list[str]) -> None:
    if "" in ids:
        misused("a transactional id has at least one character")


def _age_ms(text: str) -> int:
    try:
        return parse_age_ms(text)
    except ValueError as error:
        misused(str(error))


def _document(one: "Transaction", now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": one.id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "timeout_ms": one.timeout_ms,
        "started_ms": one.started_ms if one.open else None,
        "open_s": (now_ms - one.started_ms) / 1000 if one.open else None,
        "coordinator": str(one.coordinator),
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in one.places],
    }


def _hanging_document(one: "OpenTransaction") -> dict[str, Any]:
    topic, partition = one.place
    return {
        "topic": topic,
        "partition": partition,
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "first_offset": one.first_offset,
        "last_write_ms": one.last_ms,
        "coordinator_epoch": one.coordinator_epoch,
    }


def _print_description(one: "Transaction", now_ms: int) -> None:
    typer.echo(harmless(f"{one.id}  {one.state}  producer id {one.producer_id}  epoch {one.epoch}"))
    limit = f"time-out {age(one.timeout_ms / 1000)}"
    opened = f"open for {_ago(one.started_ms, now_ms)}, " if one.open else ""
    typer.echo(f"{opened}{limit}, coordinator {one.coordinator}")
    if one.places:
        print_table(("topic", "partition"), one.places, right=("partition",))


def _ago(then_ms: int, now_ms: int) -> str:
    return age(max(0, now_ms - then_ms) / 1000) if then_ms >= 0 else "-"


def main(arguments: list[str]) -> int:
    return run(app, "skidway transaction", arguments)
