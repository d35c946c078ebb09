"""What a person sees of a cluster that runs on this machine: a table that stays up to date, or lines if nobody watches.

Ends when the person does (Ctrl-C, SIGTERM): then the nodes are stopped in order; or when all nodes have ended.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import typer

from skidway.cli.local_cluster import LocalCluster, LocalNode
from skidway.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, harmless

LOOK_EVERY_S = 0.5
ANSWER_TIMEOUT_MS = 1_000


@dataclass(slots=True)
class View:
    """What the cluster said of itself last."""

    controller: int | None = None
    members: set[int] = field(default_factory=set)
    leads: Counter[int] = field(default_factory=Counter)
    replicas: Counter[int] = field(default_factory=Counter)
    lagging: Counter[int] = field(default_factory=Counter)
    """Replicas of a node that are not in sync."""


def watch(cluster: LocalCluster) -> int:
    """Returns the exit code."""
    typer.echo(f"cluster in {cluster.directory}; clients connect to {cluster.plan.bootstrap}; Ctrl-C stops it")
    show, finish = _table(cluster) if sys.stdout.isatty() else _lines(cluster)
    view = View()
    try:
        show(view)
        while cluster.running:
            time.sleep(LOOK_EVERY_S)
            cluster.restart_some()
            view = look(cluster) or view
            show(view)
        show(view)  # nodes may have ended since the last look
    except KeyboardInterrupt:
        finish()
        typer.echo("stopping; press Ctrl-C again to kill")
        return _stop(cluster, view)
    finish()
    for node in cluster.nodes:
        typer.secho(
            f"node {node.number} ended with exit code {node.exit_code}: {harmless(node.last_words())}", err=True
        )
    return EXIT_FAILED


def look(cluster: LocalCluster) -> View | None:
    """Ask whoever answers; None if nobody does."""
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.cluster_admin import ClusterAdmin
    from skidway.blocking_client.errors import ClientError

    view = View()
    ready = [node.address for node in cluster.nodes if node.state == "ready"]
    if not ready:
        return None
    try:
        with Cluster(",".join(ready), client_id="skidway-cluster", timeout_ms=ANSWER_TIMEOUT_MS) as client:
            admin = ClusterAdmin(client)
            for partition in admin.partitions().values():
                view.leads[partition.leader] += 1
                view.replicas.update(partition.replicas)
                view.lagging.update(set(partition.replicas) - set(partition.in_sync))
            view.members = set(client.picture.brokers)
            view.controller = client.picture.controller
            view.controller = admin.describe_quorum().leader
    except ClientError:
        return view if view.members else None
    return view


def _stop(cluster: LocalCluster, view: View) -> int:
    try:
        cluster.stop(view.controller, lambda node: typer.echo(f"node {node.number} stopped"))
    except KeyboardInterrupt:
        typer.echo("killed: the next start recovers the logs", err=True)
        cluster.kill()
        return EXIT_INTERRUPTED
    typer.echo(f"stopped; the data is in {cluster.directory}")
    return 0


def _condition(node: LocalNode, view: View) -> str:
    if node.state != "ready":
        code = node.exit_code
        return node.state if code is None else f"ended ({code}), see {node.log_file}"
    if node.number not in view.members:
        return "joining"
    return "controller" if node.number == view.controller else "up"


def _lines(cluster: LocalCluster) -> tuple[Callable[[View], None], Callable[[], None]]:
    known: dict[int, str] = {}

    def show(view: View) -> None:
        for node in cluster.nodes:
            condition = _condition(node, view)
            if known.get(node.number) != condition:
                known[node.number] = condition
                typer.echo(f"node {node.number} at {node.address}: {condition}")

    return show, lambda: None


def _table(cluster: LocalCluster) -> tuple[Callable[[View], None], Callable[[], None]]:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    colours = {"up": "green", "controller": "bold green", "joining": "yellow", "starting": "yellow"}

    def draw(view: View) -> Any:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("node", "address", "state", "leads", "replicas", "behind", "pid"):
            table.add_column(name, justify="left" if name in ("address", "state") else "right")
        for node in cluster.nodes:
            condition = _condition(node, view)
            pid = "" if node.process is None or node.state == "ended" else str(node.process.pid)
            counts = [str(count[node.number]) for count in (view.leads, view.replicas, view.lagging)]
            style = colours.get(condition, "red")
            table.add_row(str(node.number), node.address, f"[{style}]{condition}[/]", *counts, pid)
        return table

    live = Live(draw(View()), console=Console(), auto_refresh=False)
    live.start()
    return lambda view: live.update(draw(view), refresh=True), live.stop
