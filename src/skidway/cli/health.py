"""`skidway cluster health`: one word, an exit code for scripts, and for each problem what it is and what to do.

Kafka's protocol is asked, and, where `--http-at` names them, the nodes themselves.

0 healthy     every broker and voter is there, every replica is in sync
1 degraded    everything can be read and led, but something is missing: another failure may stop it
2 unavailable nobody answers, there is no controller, or partitions have no leader
"""

import time
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.counts import internal_among, numbers, of_brokers, of_partitions
from skidway.cli.output import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, count_of, friendly, harmless, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skidway.blocking_client.addresses import Address
    from skidway.blocking_client.cluster import Partition
    from skidway.blocking_client.cluster_admin import ClusterAdmin, ClusterState, Quorum
    from skidway.blocking_client.moves import PartitionKey

ANSWER_S = 5.0
VOTER_SILENT_MS = 5_000
"""A voter that follows has all there is every half second or so."""
LOOK_EVERY_S = 0.5
NAMED_MAX = 5


class Status(IntEnum):
    HEALTHY = 0
    DEGRADED = 1
    UNAVAILABLE = 2


@dataclass(slots=True)
class Problem:
    severity: str
    kind: str
    text: str
    todo: str
    nodes: list[int] = field(default_factory=list)
    partitions: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Health:
    cluster_id: str | None = None
    controller: int | None = None
    brokers: int = 0
    brokers_down: list[int] = field(default_factory=list)
    partitions: int = 0
    internal_partitions: int = 0
    nodes: list[dict[str, Any]] = field(default_factory=list)
    """What those say that were asked over HTTP."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def status(self) -> Status:
        return max((Status[problem.severity.upper()] for problem in self.problems), default=Status.HEALTHY)

    def found(self, status: Status, kind: str, text: str, todo: str, **more: Any) -> None:
        self.problems.append(Problem(status.name.lower(), kind, text, todo, **more))

    def document(self) -> dict[str, Any]:
        return {"status": self.status.name.lower(), "exit_code": int(self.status), **asdict(self)}


@friendly
def health(
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", help="Check again until the cluster is healthy, for at most this long.", min=0
        ),
    ] = 0.0,
    http: Annotated[
        str | None,
        typer.Option(
            "--http-at",
            metavar="HOST:PORT[,…]",
            help="Where nodes answer HTTP: ask each whether it lives and is ready, too.",
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="How long to wait for an answer, and for a controller.",
            min=0.1,
            rich_help_panel="Connection",
        ),
    ] = ANSWER_S,
) -> None:
    """Show whether the cluster is healthy, and what to do if not. Exit code 0: healthy, 1: degraded, 2: unavailable.

    Kafka's protocol does not tell where nodes answer HTTP. With --http-at they are asked there (/livez, /readyz): one
    that does not answer, or is not ready, makes the cluster degraded.
    """
    nodes = [] if http is None else _addresses(http)
    deadline = time.monotonic() + wait
    found = examine(bootstrap, timeout, nodes)
    while found.status is not Status.HEALTHY and time.monotonic() < deadline:
        time.sleep(min(LOOK_EVERY_S, max(0.0, deadline - time.monotonic())))
        found = examine(bootstrap, timeout, nodes)
    if as_json:
        print_json(found.document())
    else:
        _show(found)
    raise typer.Exit(int(found.status))


def _addresses(http: str) -> "list[Address]":
    from skidway.blocking_client.node_health import parse_addresses

    return parse_addresses(http)


def examine(bootstrap: str, timeout_s: float, nodes: "Sequence[Address]" = ()) -> Health:
    """One look. Nobody who answers is a finding, not an error; an address that is none is an error. `nodes`: where
    they answer HTTP."""
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.cluster_admin import ClusterAdmin
    from skidway.blocking_client.errors import BadAddress, ClientError

    found = Health()
    try:
        with Cluster(bootstrap, client_id="skidway-cli", timeout_ms=int(timeout_s * 1000)) as cluster:
            _examine(ClusterAdmin(cluster), found, int(timeout_s * 1000))
    except BadAddress:
        raise
    except ClientError as error:
        todo = "start the brokers, or name a running one with --bootstrap; their logs say why they stopped"
        found.found(Status.UNAVAILABLE, "unreachable", str(error), todo)
    if nodes:
        _ask_nodes(found, nodes, timeout_s)
    return found


def _ask_nodes(found: Health, addresses: "Sequence[Address]", timeout_s: float) -> None:
    from skidway.blocking_client.node_health import NotReady, Ready, Silent, Stranger, ask_nodes

    for address, told in zip(addresses, ask_nodes(addresses, timeout_s), strict=True):
        entry: dict[str, Any] = {"address": str(address), "live": False, "ready": False, "node": None, "reasons": []}
        match told:
            case Ready(node):
                entry |= {"live": True, "ready": True, "node": node}
            case NotReady(node, reasons):
                entry |= {"live": True, "node": node, "reasons": reasons}
                text = (
                    f"node {node} at {address} is not ready for clients: {'; '.join(reasons) or 'it does not say why'}"
                )
                todo = "wait if it is starting; else read its log"
                found.found(Status.DEGRADED, "not_ready", text, todo, nodes=[node])
            case Silent(why):
                entry["reasons"] = [why]
                text = f"no node answers HTTP at {address}: {why}"
                todo = "start it, or name where it answers: its log says so, and serve --http HOST:PORT chooses it"
                found.found(Status.DEGRADED, "http_silent", text, todo)
            case Stranger(why):
                entry["reasons"] = [why]
                text = f"who answers at {address} is no node of Skidway: {why}"
                found.found(Status.DEGRADED, "http_stranger", text, "name the address that serve --http chooses")
        found.nodes.append(entry)


def _examine(admin: "ClusterAdmin", found: Health, timeout_ms: int) -> None:
    from skidway.blocking_client.errors import BrokerError, NoController, Unsupported

    state = admin.describe_cluster()
    partitions = admin.partitions()
    found.cluster_id, found.brokers, found.partitions = state.cluster_id, len(state.brokers), len(partitions)
    found.brokers_down = [broker.id for broker in state.brokers.values() if broker.fenced]
    found.internal_partitions = internal_among(admin.cluster, (topic for topic, _ in partitions))
    quorum: Quorum | None = None
    try:
        quorum = admin.describe_quorum(timeout_ms)
    except NoController:
        _without_controller(admin, found, state, partitions)
        return
    except (BrokerError, Unsupported):
        pass  # no Raft quorum to ask about
    found.controller = quorum.leader if quorum is not None else state.controller
    _check_leaders(found, partitions, {broker.id for broker in state.brokers.values() if not broker.fenced})
    _check_brokers(found, state, partitions)
    _check_replicas(admin, found, partitions)
    if quorum is not None:
        _check_voters(found, quorum)


def _without_controller(
    admin: "ClusterAdmin", found: Health, state: "ClusterState", partitions: "dict[PartitionKey, Partition]"
) -> None:
    silent = [number for number, broker in state.brokers.items() if not admin.answers(broker)]
    found.brokers_down = silent  # nobody fences anybody without a controller
    text = "there is no controller: a majority of the voters is not reachable, so nothing in the cluster can change"
    named = f" (no answer from {numbers(silent)})" if silent else ""
    todo = f"start the voters that are down{named}, with the flags they were started with, or look at the network"
    found.found(Status.UNAVAILABLE, "no_controller", text, todo, nodes=silent)
    led = {key: partition for key, partition in partitions.items() if partition.leader in silent}
    if led:
        text = f"{count_of(len(led), 'partition')} led by a broker that does not answer: {_named(led)}"
        todo = "another replica leads as soon as there is a controller"
        found.found(Status.UNAVAILABLE, "leader_silent", text, todo, partitions=_listed(led))
    _check_leaders(found, partitions, set(state.brokers) - set(silent))


def _check_leaders(found: Health, partitions: "dict[PartitionKey, Partition]", up: set[int]) -> None:
    leaderless = {key: partition for key, partition in partitions.items() if partition.leader < 0}
    if leaderless:
        replicas = sorted({number for partition in leaderless.values() for number in partition.replicas})
        text = f"{count_of(len(leaderless), 'partition')} without a leader: {_named(leaderless)}"
        todo = _todo_without_leader(sorted(set(replicas) - up), sorted(set(replicas) & up))
        found.found(Status.UNAVAILABLE, "no_leader", text, todo, nodes=replicas, partitions=_listed(leaderless))


def _todo_without_leader(down: list[int], up: list[int]) -> str:
    """Who is down may have what is missing. Who is up and does not lead has a copy that is damaged or behind."""
    if down:
        todo = f"start the brokers that have the replicas: {numbers(down)}; if their disks are lost: "
        return todo + "skidway cluster elect-leaders --unclean, which may lose messages"
    todo = f"{numbers(up)} {'is' if len(up) == 1 else 'are'} up, so the copies there are damaged or behind: read the "
    todo += "broker's log, which says what is missing; restore the files from a backup, or, to give up what is lost, "
    todo += "run skidway cluster elect-leaders --unclean for a copy that is behind, or put an empty file named "
    return todo + "accept-loss into the directory of a damaged one and restart the broker"


def _check_brokers(found: Health, state: "ClusterState", partitions: "dict[PartitionKey, Partition]") -> None:
    used = {number for partition in partitions.values() for number in partition.replicas}
    for broker in state.brokers.values():
        if not broker.fenced or (broker.drained and broker.id not in used):
            continue
        text = f"broker {broker.id} at {broker.host}:{broker.port} is fenced: the controller gets no heartbeats from it"
        todo = "restart it with its data directory, or read its log; if skidway cluster start runs it: "
        todo += f"skidway cluster restart-node {broker.id} --data-dir DIR; if it is gone for good: "
        todo += f"skidway cluster drain {broker.id}, then skidway cluster unregister {broker.id}"
        found.found(Status.DEGRADED, "fenced_broker", text, todo, nodes=[broker.id])


def _check_replicas(admin: "ClusterAdmin", found: Health, partitions: "dict[PartitionKey, Partition]") -> None:
    moving = admin.reassignments()
    lacking = {
        key: partition
        for key, partition in partitions.items()
        if set(partition.replicas) - set(partition.in_sync) - set(moving[key].adding if key in moving else ())
    }
    if not lacking:
        return
    missing = sorted({number for each in lacking.values() for number in set(each.replicas) - set(each.in_sync)})
    text = f"{count_of(len(lacking), 'partition')} under-replicated, on {numbers(missing)}: {_named(lacking)}"
    todo = f"start {numbers(missing)}, unless already catching up: skidway cluster describe shows it"
    found.found(Status.DEGRADED, "under_replicated", text, todo, nodes=missing, partitions=_listed(lacking))
    least = admin.min_in_sync({topic for topic, _ in lacking})
    short = {
        key: partition
        for key, partition in lacking.items()
        if len(partition.in_sync) < min(least.get(key[0], 1), len(partition.replicas))
    }
    if short:
        text = (
            f"{count_of(len(short), 'partition')} with fewer replicas in sync than min.insync.replicas: {_named(short)}"
        )
        todo = "they reject messages with acks=all until more replicas are in sync"
        found.found(Status.DEGRADED, "below_min_isr", text, todo, partitions=_listed(short))


def _check_voters(found: Health, quorum: "Quorum") -> None:
    newest_ms = max((voter.caught_up_ms for voter in quorum.voters), default=-1)
    silent = [
        voter.id
        for voter in quorum.voters
        if voter.id != quorum.leader and (voter.end_offset < 0 or newest_ms - voter.caught_up_ms > VOTER_SILENT_MS)
    ]
    if not silent:
        return
    spare = (len(quorum.voters) - 1) // 2 - len(silent)
    left = f"{count_of(spare, 'more voter')} may fail" if spare > 0 else "no other voter may fail"
    text = f"not following the metadata: {numbers(silent)} of {count_of(len(quorum.voters), 'voter')}"
    todo = f"start {numbers(silent)} again; until then {left}, or the cluster has no controller"
    found.found(Status.DEGRADED, "voter_silent", text, todo, nodes=silent)


def _named(partitions: "dict[PartitionKey, Partition]") -> str:
    names = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _listed(partitions: "dict[PartitionKey, Partition]") -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "partition": index,
            "leader": partition.leader,
            "replicas": partition.replicas,
            "in_sync": partition.in_sync,
        }
        for (topic, index), partition in sorted(partitions.items())
    ]


def counted(found: Health) -> str:
    """Brokers, partitions and the controller."""
    brokers = of_brokers(found.brokers, found.brokers_down)
    controller = "no controller" if found.controller is None else f"controller {found.controller}"
    ready = sum(node["ready"] for node in found.nodes)
    nodes = f", {ready} of {count_of(len(found.nodes), 'node')} ready" if found.nodes else ""
    return f"{brokers}, {of_partitions(found.partitions, found.internal_partitions)}, {controller}{nodes}"


def _show(found: Health) -> None:
    colours = (typer.colors.GREEN, typer.colors.YELLOW, typer.colors.RED)
    word = typer.style(found.status.name.lower(), fg=colours[found.status], bold=True)
    typer.echo(word if found.cluster_id is None else f"{word}: {counted(found)}")
    for problem in found.problems:
        typer.echo(harmless(f"  {problem.text}"))
        typer.echo(harmless(f"    to do: {problem.todo}"))
