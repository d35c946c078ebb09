"""The checks of `skidway doctor` that ask brokers: reachable, advertised addresses, health of the cluster, clocks."""

import time
from typing import TYPE_CHECKING

from skidway.blocking_client.addresses import Address, parse_bootstrap
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.cluster_admin import ClusterAdmin
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import BadReply, ClientError, ConnectionLost
from skidway.cli.findings import Findings
from skidway.cli.health import Status, counted, examine
from skidway.cli.machine_checks import is_local
from skidway.cli.output import quantity
from skidway.wire.schema.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from skidway.blocking_client.cluster_admin import ClusterState

CONNECT_MS = 2_000
SKEW_MS = 1_000
BROKERS_CHECKED_MAX = 50


def check_brokers(found: Findings, bootstrap: str, timeout_s: float) -> None:
    """Everything a broker can be asked. `BadAddress` if the bootstrap list is none."""
    addresses = parse_bootstrap(bootstrap)
    problems = {address: _problem_of(address, timeout_s) for address in addresses}
    answering = [address for address in addresses if problems[address] is None]
    for address, problem in problems.items():
        if problem is None:
            found.ok("broker", f"{address} answers")
        else:
            # One broker is enough to find the others.
            report = found.warn if answering else found.fail
            report("broker", *problem)
    if not answering:
        return
    timeout_ms = int(timeout_s * 1000)
    try:
        with Cluster(bootstrap, client_id="skidway-cli", timeout_ms=timeout_ms) as cluster:
            admin = ClusterAdmin(cluster)
            state = admin.describe_cluster()
            _check_advertised(found, state, answering, timeout_ms)
            _check_clock(found, admin, timeout_ms)
    except ClientError as error:
        found.fail("cluster", str(error), "look at the log of the broker")
        return
    _check_health(found, bootstrap, timeout_s)


def _problem_of(address: Address, timeout_s: float) -> tuple[str, str] | None:
    """What is wrong with an address where a broker should answer, and what to do."""
    try:
        Connection(address, client_id="skidway-cli", reply_timeout_ms=int(timeout_s * 1000)).close()
    except BadReply as error:
        return str(error), "another server listens there: name a broker with --bootstrap HOST:PORT"
    except ConnectionLost as error:
        return str(
            error
        ), "the server is not a broker, wants TLS, or waits for a majority of the voters: look at its log"
    except ClientError as error:
        todo = "start the broker (skidway serve), look for a firewall, or name another with --bootstrap HOST:PORT"
        return str(error), todo
    return None


def _check_advertised(found: Findings, state: "ClusterState", answering: list[Address], timeout_ms: int) -> None:
    """Clients connect to what brokers advertise, not to the bootstrap address: that has to work from here."""
    from_afar = not all(is_local(address.host) for address in answering)
    there = [broker for broker in state.brokers.values() if not broker.fenced]
    for broker in there[:BROKERS_CHECKED_MAX]:
        address = Address(broker.host, broker.port)
        named = f"node {broker.id} advertises {address}"
        todo = f"start node {broker.id} with --advertise HOST:PORT, an address that clients can resolve and reach"
        try:
            cluster_id = _cluster_at(address, timeout_ms)
        except ClientError as error:
            found.fail("advertised", f"{named}, where clients fail: {error}", todo)
            continue
        if cluster_id is not None and cluster_id != state.cluster_id:
            text = f"{named}, where a broker of another cluster answers ({cluster_id}, not {state.cluster_id})"
            found.fail("advertised", text, todo)
        elif from_afar and is_local(broker.host):
            text = f"{named}, which every machine takes for itself: clients on other machines cannot connect"
            found.warn("advertised", text, todo)
        else:
            found.ok("advertised", f"{named}, and that address answers")


def _cluster_at(address: Address, timeout_ms: int) -> str | None:
    with Connection(
        address, client_id="skidway-cli", connect_timeout_ms=min(CONNECT_MS, timeout_ms), reply_timeout_ms=timeout_ms
    ) as connection:
        return connection.call(MetadataRequest(topics=[]), MetadataResponse).cluster_id


def _check_clock(found: Findings, admin: ClusterAdmin, timeout_ms: int) -> None:
    """The controller's clock beside ours. Its own entry in DescribeQuorum carries its time; no request tells the time
    of another node, so each machine has to be checked by a doctor of its own."""
    before = time.time()
    try:
        quorum = admin.describe_quorum(timeout_ms)
    except ClientError:
        return  # the health check says why there is no controller
    after = time.time()
    told = [member.caught_up_ms for member in (*quorum.voters, *quorum.observers) if member.id == quorum.leader]
    if not told or told[0] < 0:
        return
    skew_ms = max(before * 1000 - told[0], told[0] - after * 1000, 0.0)
    name = f"the clock of node {quorum.leader} (the controller)"
    if skew_ms > SKEW_MS:
        side = "behind" if told[0] < before * 1000 else "ahead of"
        todo = "synchronise the clocks of all machines with NTP (chronyd, systemd-timesyncd)"
        found.warn("clock skew", f"{name} is {quantity(skew_ms)} ms {side} the clock of this machine", todo)
    else:
        found.ok(
            "clock skew",
            f"{name} and of this machine agree within {quantity(max(skew_ms, 1000 * (after - before)))} ms",
        )


def _check_health(found: Findings, bootstrap: str, timeout_s: float) -> None:
    health = examine(bootstrap, timeout_s)
    for problem in health.problems:
        report = found.fail if Status[problem.severity.upper()] is Status.UNAVAILABLE else found.warn
        report("cluster", problem.text, problem.todo)
    if not health.problems:
        found.ok("cluster", f"healthy: {counted(health)}")
