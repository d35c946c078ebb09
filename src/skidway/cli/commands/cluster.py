"""`skidway cluster`: run one on this machine, look at one (`health`), drain a broker, give leads back."""

import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.counts import internal_among, of_brokers, of_partitions
from skidway.cli.features import features
from skidway.cli.health import health
from skidway.cli.help.names import complete_broker, complete_topic
from skidway.cli.options import DryRun
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    EXIT_FAILED,
    AsJson,
    Bootstrap,
    ControllerTimeout,
    count_of,
    fail,
    friendly,
    group,
    misused,
    print_json,
    print_table,
    run,
    warn,
)
from skidway.cli.reassign import (
    Moves,
    MoveTimeout,
    Wait,
    answer_s,
    carry_out,
    cluster_admin,
    drained_too,
    ids,
    move_s,
    open_to_new,
    targets,
)

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Partition
    from skidway.blocking_client.cluster_admin import BrokerState, ClusterAdmin, Quorum

app = group("Run a cluster on this machine; check, describe, drain and balance any cluster.")

SHOWN_PARTITIONS_MAX = 20
NODES_MAX = 50
FEW_VOTERS = {
    2: "2 voters are left, and none of them may fail: with one alone there is no fail-over and nothing in the cluster "
    "changes; add a third",
    1: "1 voter is left: while it is down there is no fail-over and nothing in the cluster changes; add two more",
}
"""By how many are left: what that means."""
NO_CONTROLLER = """\
no controller: a majority of the voters is not reachable. Until it is, the cluster elects no leaders, creates no topics
and fences no brokers. Start the voters that are down, with the flags (or the file) they were started with, or check
the network between them. This is what the node that answered knew last."""
WIPED = """\
node {0} is a voter that does not vote: its data directory is not the one it voted with, because that was emptied,
replaced or mistyped. If it still exists, restart the node with it. If it is lost, give the vote to the new directory:
  skidway cluster remove-voter {0}
  skidway cluster add-voter {0}"""
QUORUM_WAIT_MS = 5_000
"""An election takes less; without a controller all the rest is still worth seeing."""


@app.command(epilog="Example: skidway cluster start --nodes 3 --data-dir my-cluster")
@friendly
def start(
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", metavar="N", min=1, max=NODES_MAX, help="How many nodes. Default: 3, for a new directory."
        ),
    ] = None,
    data_dir: Annotated[Path, typer.Option("--data-dir", "-d", metavar="DIR", help="Where the data is kept.")] = Path(
        "cluster-data"
    ),
    base_port: Annotated[
        int | None,
        typer.Option(
            "--base-port",
            "-P",
            metavar="PORT",
            min=1,
            max=65_535,
            help="Node 1 listens here, the others on the next ports.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting for all nodes; repeatable.")
    ] = None,
) -> None:
    """Run a cluster on this machine, one process for each node, until Ctrl-C."""
    from skidway.cli.local_cluster import CannotStart, LocalCluster
    from skidway.cli.watching import watch

    try:
        cluster = LocalCluster(data_dir, nodes, base_port, settings or [])
    except CannotStart as error:
        fail(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.start()
        code = watch(cluster)
    except CannotStart as error:
        fail(str(error))
    finally:
        cluster.close()
    raise typer.Exit(code)


@app.command("restart-node", epilog="Example: skidway cluster restart-node 1 --data-dir my-cluster")
@friendly
def restart_node(
    node: Annotated[int, typer.Argument(help="The number of the node.", min=1)],
    data_dir: Annotated[Path, typer.Option("--data-dir", "-d", metavar="DIR", help="Where the data is kept.")] = Path(
        "cluster-data"
    ),
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait until it is ready.", min=1)
    ] = 60.0,
) -> None:
    """Restart one node of a cluster that `cluster start` runs on this machine, even if the node has stopped."""
    from skidway.cli.local_cluster import CannotStart, ask_for_restart, await_restart

    try:
        asked = ask_for_restart(data_dir, node)
        await_restart(asked, timeout)
    except CannotStart as error:
        fail(str(error))
    typer.echo(f"node {node} restarted at {asked.address}")


@app.command(epilog="Example: skidway cluster describe --json")
@friendly
def describe(
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Show nodes, controller, metadata quorum, and under-replicated partitions."""
    document = _describe(cluster_admin(bootstrap, timeout))
    if as_json:
        print_json(document)
    else:
        _print_description(document)


app.command(epilog="Example: skidway cluster health --wait 60")(health)
app.command(epilog="Example: skidway cluster features --upgrade transaction.version=2")(features)


@app.command(epilog="Example: skidway cluster drain 3")
@friendly
def drain(
    broker: Annotated[
        int, typer.Argument(help="The number of the broker to empty.", min=0, autocompletion=complete_broker)
    ],
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Allow new replicas on it again. Replicas that have moved stay where they are."),
    ] = False,
    dry_run: DryRun = False,
    wait: Wait = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: MoveTimeout = None,
) -> None:
    """Move every replica of a broker to the others, and place no new ones on it, so that you can remove it."""
    if undo and not wait:
        misused("--undo waits for nothing: leave --no-wait out")
    admin = cluster_admin(bootstrap, answer_s(timeout))
    voters = _voters(admin)
    brokers = admin.describe_cluster().brokers
    if broker not in brokers:
        fail(f"there is no broker {broker}; the brokers are {', '.join(map(str, brokers))}")
    if undo:
        _undo_drain(admin, brokers[broker], dry_run=dry_run)
        return
    moves = _moves_off(admin, broker)  # what cannot be is refused before anything is changed
    if not dry_run:
        admin.keep_drained(broker, True)
        # Nothing new is placed on it from now on; what was placed meanwhile moves too.
        moves = _moves_off(admin, broker)
    carry_out(admin, moves, dry_run=dry_run, wait_s=move_s(timeout) if wait else None)
    _warn_of_vote(broker, voters)


def _undo_drain(admin: "ClusterAdmin", broker: "BrokerState", *, dry_run: bool) -> None:
    if not broker.drained:
        typer.echo(f"broker {broker.id} is not drained")
        return
    if dry_run:
        typer.echo(f"broker {broker.id} would accept new replicas again")
    else:
        admin.keep_drained(broker.id, False)
        typer.echo(f"broker {broker.id} accepts new replicas again; replicas that have moved stay where they are")
    leaving = [topic for (topic, _), move in admin.reassignments().items() if broker.id in move.removing]
    if leaving:
        command = f"skidway topic reassign {' '.join(sorted(set(leaving)))} --cancel"
        moving = count_of(len(leaving), "partition")
        warn(f"still moving off broker {broker.id}: {moving}; {command} puts them back")


def _moves_off(admin: "ClusterAdmin", broker: int) -> Moves:
    from skidway.blocking_client.moves import NotEnoughBrokers, Place, spread

    brokers = admin.describe_cluster().brokers
    moving = admin.reassignments()
    everything = targets(admin, moving)
    here = {key: replicas for key, replicas in everything.items() if broker in replicas}
    places = [Place(other, brokers[other].rack) for other in open_to_new(brokers) if other != broker]
    try:
        plan = spread(here, places, elsewhere={key: at for key, at in everything.items() if key not in here})
    except NotEnoughBrokers as error:
        text = f"broker {broker} cannot be drained: {error}{drained_too(brokers, but=broker)}"
        fail(f"{text}; add a broker, or lower the topic's replicas first")
    leaving = {key for key, move in moving.items() if broker in move.replicas}
    return Moves(
        plan, everything, leaving, done=f"broker {broker} is empty and gets no new replicas; --undo allows them again"
    )


@app.command("elect-leaders", epilog="Example: skidway cluster elect-leaders --topic orders")
@friendly
def elect_leaders(
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="Only this topic; repeatable.", autocompletion=complete_topic
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Also elect replicas that may lack records, for partitions without a leader."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Make the first (preferred) replica of every partition its leader again, if it is in sync."""
    admin = cluster_admin(bootstrap, timeout)
    _voters(admin)
    chosen = [admin.topic(name) for name in topic] if topic else admin.topics()
    wanted = [
        (each.name, partition.index)
        for each in chosen
        for partition in each.partitions.values()
        if (partition.leader < 0 if unclean else partition.leader != partition.replicas[0])
    ]
    if not wanted:
        typer.echo("every partition has a leader" if unclean else "every partition is led by its first replica")
        return
    results = admin.elect_leaders(wanted, unclean=unclean)
    refused = [error for error in results.values() if error is not None]
    typer.echo(f"new leaders: {len(results) - len(refused)} of {count_of(len(wanted), 'partition')}")
    for error in refused:
        warn(str(error))
    if refused:
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: skidway cluster unregister 4")
@friendly
def unregister(
    broker: Annotated[
        int, typer.Argument(help="The number of a broker that is gone for good.", min=0, autocompletion=complete_broker)
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Remove a broker that was drained and stopped from the cluster's metadata."""
    admin = cluster_admin(bootstrap, timeout)
    voters = _voters(admin)
    brokers = admin.describe_cluster().brokers
    if broker not in brokers:
        fail(f"there is no broker {broker}; the brokers are {', '.join(map(str, brokers))}")
    if not brokers[broker].fenced:
        fail(f"broker {broker} is up; stop it first")
    kept = sum(broker in partition.replicas for partition in admin.partitions().values())
    if kept:
        fail(f"broker {broker} has {count_of(kept, 'replica')}; move them first: skidway cluster drain {broker}")
    admin.unregister_broker(broker)
    typer.echo(f"unregistered broker {broker}")
    _warn_of_vote(broker, voters)


@app.command("add-voter", epilog="Example: skidway cluster add-voter 4 --at controller-4.example:9092")
@friendly
def add_voter(
    node: Annotated[int, typer.Argument(help="The number of a node with the role controller.", min=0)],
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="HOST:PORT", help="Where it listens; needed if it is not a broker too."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Make a node a voter of the metadata quorum; one at a time."""
    from skidway.blocking_client.addresses import parse_address

    address = cluster_admin(bootstrap, timeout).add_voter(node, parse_address(at) if at is not None else None)
    typer.echo(f"node {node} is a voter; the others reach it at {address}")


@app.command("remove-voter", epilog="Example: skidway cluster remove-voter 1")
@friendly
def remove_voter(
    node: Annotated[int, typer.Argument(help="The number of a voter.", min=0)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Remove a node from the voters of the metadata quorum; one at a time."""
    left = cluster_admin(bootstrap, timeout).remove_voter(node)
    typer.echo(f"node {node} is no longer a voter")
    if left in FEW_VOTERS:
        warn(FEW_VOTERS[left])


def _voters(admin: "ClusterAdmin") -> set[int]:
    """`NoController` if there is none: then what a node says of the others is what it knew last, and no ground to act.

    Nobody where the cluster does not tell.
    """
    from skidway.blocking_client.errors import BrokerError, Unsupported

    try:
        return {voter.id for voter in admin.describe_quorum().voters}
    except (BrokerError, Unsupported) as error:
        if isinstance(error, BrokerError) and error.retriable:
            raise
        return set()


def _warn_of_vote(node: int, voters: set[int]) -> None:
    if node in voters:
        text = f"node {node} is still a voter: before you remove it for good, run"
        warn(f"{text} skidway cluster remove-voter {node}")


def _describe(admin: "ClusterAdmin") -> dict[str, Any]:
    from skidway.blocking_client.errors import BrokerError, NoController, Unsupported

    state = admin.describe_cluster()
    partitions = admin.partitions()
    controlled = True
    try:
        quorum = admin.describe_quorum(QUORUM_WAIT_MS)
    except NoController:
        quorum, controlled = None, False
    except (BrokerError, Unsupported):
        quorum = None
    leads = Counter(partition.leader for partition in partitions.values())
    replicas = Counter(broker for partition in partitions.values() for broker in partition.replicas)
    voters = [] if quorum is None else [voter.id for voter in quorum.voters]
    addresses = {} if quorum is None else quorum.addresses
    nodes = []
    for node in sorted({*state.brokers, *voters}):
        broker = state.brokers.get(node)
        host, port = (broker.host, broker.port) if broker is not None else addresses.get(node, ("?", 0))
        nodes.append(
            {
                "node": node,
                "address": f"{host}:{port}",
                "rack": broker.rack if broker is not None else None,
                "roles": [*(["broker"] if broker is not None else []), *(["controller"] if node in voters else [])],
                "fenced": broker.fenced if broker is not None else None,
                "drained": broker.drained if broker is not None else None,
                # Nobody fences anybody without a controller: then we look for ourselves.
                "answers": None if controlled or broker is None else admin.answers(broker),
                "leads": leads[node],
                "replicas": replicas[node],
            }
        )
    lacking = {key: partition for key, partition in partitions.items() if _lacks(partition)}
    return {
        "cluster_id": state.cluster_id,
        "controller": None if not controlled else quorum.leader if quorum is not None else state.controller,
        "nodes": nodes,
        "quorum": None if quorum is None else _quorum(quorum),
        "partitions": len(partitions),
        "internal_partitions": internal_among(admin.cluster, (topic for topic, _ in partitions)),
        "under_replicated": [
            {
                "topic": topic,
                "partition": index,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "in_sync": partition.in_sync,
            }
            for (topic, index), partition in sorted(lacking.items())
        ],
    }


def _lacks(partition: "Partition") -> bool:
    return partition.leader < 0 or not set(partition.replicas) <= set(partition.in_sync)


def _quorum(quorum: "Quorum") -> dict[str, Any]:
    wiped = quorum.wiped
    return {
        "leader": quorum.leader,
        "epoch": quorum.epoch,
        "high_watermark": quorum.high_watermark,
        "members": [
            {
                "node": member.id,
                "votes": votes,
                "wiped": member.id in wiped,
                "end_offset": member.end_offset,
                "lag": member.lag,
                "caught_up_ms": member.caught_up_ms,
            }
            for votes, members in ((True, quorum.voters), (False, quorum.observers))
            for member in members
            if not (votes and member.id in wiped)
        ],
    }


def _print_description(document: dict[str, Any]) -> None:
    controller = "no controller" if document["controller"] is None else f"controller {document['controller']}"
    brokers = [node for node in document["nodes"] if node["fenced"] is not None]
    down = [node["node"] for node in brokers if (node["fenced"] if node["answers"] is None else not node["answers"])]
    counted = of_brokers(len(brokers), down)
    typer.echo(typer.style(f"cluster {document['cluster_id']}", bold=True) + f"  {counted}, {controller}")
    rows = [
        (
            node["node"],
            node["address"],
            node["rack"] or "-",
            ",".join(node["roles"]),
            _state(node),
            node["leads"],
            node["replicas"],
        )
        for node in document["nodes"]
    ]
    columns = ("node", "address", "rack", "roles", "state", "leads", "replicas")
    print_table(columns, rows, right=("node", "leads", "replicas"))
    if document["controller"] is None:
        typer.secho(f"\n{NO_CONTROLLER}", fg=typer.colors.YELLOW)
    quorum = document["quorum"]
    if quorum is not None:
        leads = f"led by {quorum['leader']} in epoch {quorum['epoch']}, committed up to {quorum['high_watermark']}"
        typer.echo("\n" + typer.style("metadata quorum", bold=True) + f"  {leads}")
        now_ms = time.time() * 1000
        members = [
            (
                member["node"],
                "no vote (wiped)" if member["wiped"] else "voter" if member["votes"] else "observer",
                "?" if member["end_offset"] < 0 else member["end_offset"],
                "?" if member["end_offset"] < 0 else member["lag"],
                _ago(now_ms, member["caught_up_ms"]),
            )
            for member in quorum["members"]
        ]
        print_table(("node", "part", "end", "lag", "caught up"), members, right=("node", "end", "lag", "caught up"))
        for member in quorum["members"]:
            if member["wiped"]:
                typer.secho("\n" + WIPED.format(member["node"]), fg=typer.colors.YELLOW)
    _print_lacking(document)


def _state(node: dict[str, Any]) -> str:
    if node["fenced"] is None:
        return "-"
    drained = ("draining" if node["replicas"] else "drained") if node["drained"] else None
    if node["answers"] is None:
        seen = "fenced" if node["fenced"] else "up"
    else:
        seen = "answers" if node["answers"] else "no answer"
    if drained is None:
        return seen
    return drained if seen == "up" else f"{seen}, {drained}"


def _print_lacking(document: dict[str, Any]) -> None:
    lacking = document["under_replicated"]
    counted = of_partitions(document["partitions"], document["internal_partitions"])
    typer.echo()
    if not lacking:
        when = " as last reported" if document["controller"] is None else ""
        typer.echo(f"all replicas in sync{when}: {counted}")
        return
    typer.echo(typer.style(f"under-replicated: {len(lacking)} of {counted}", bold=True))
    rows = [
        (
            entry["topic"],
            entry["partition"],
            "none" if entry["leader"] < 0 else entry["leader"],
            ids(entry["replicas"]),
            ids(entry["in_sync"]),
        )
        for entry in lacking[:SHOWN_PARTITIONS_MAX]
    ]
    print_table(("topic", "partition", "leader", "replicas", "in sync"), rows, right=("partition", "leader"))
    if len(lacking) > SHOWN_PARTITIONS_MAX:
        typer.echo(f"… and {len(lacking) - SHOWN_PARTITIONS_MAX} more; --json has them all")


def _ago(now_ms: float, then_ms: int) -> str:
    return "?" if then_ms < 0 else f"{max(0.0, now_ms - then_ms) / 1000:.1f} s ago"


def main(arguments: list[str]) -> int:
    return run(app, "skidway cluster", arguments)
