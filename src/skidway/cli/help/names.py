"""Names of topics, queues, groups, transactional ids and brokers, for the shell's completion.

The brokers asked are those the command line names so far, or the profile's, or the environment's. Who presses Tab wants
no error: where nobody answers quickly, nothing is offered.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster

ANSWER_MS = 1_000


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    from skidway.blocking_client.admin import Admin

    return _names(ctx, incomplete, lambda cluster: [each.name for each in Admin(cluster).topics() if not each.internal])


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    from skidway.blocking_client.queues.managing import Queues

    return _names(ctx, incomplete, lambda cluster: [each.name for each in Queues(cluster).all()])


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    from skidway.blocking_client.groups import Groups

    return _names(ctx, incomplete, lambda cluster: [each.id for each in Groups(cluster).all()])


def complete_transactional_id(ctx: typer.Context, incomplete: str) -> list[str]:
    from skidway.blocking_client.transaction_admin import TransactionAdmin

    return _names(ctx, incomplete, lambda cluster: [each.id for each in TransactionAdmin(cluster).all()])


def complete_broker(ctx: typer.Context, incomplete: str) -> list[str]:
    from skidway.blocking_client.cluster_admin import ClusterAdmin

    return _names(ctx, incomplete, lambda cluster: map(str, ClusterAdmin(cluster).describe_cluster().brokers))


def _names(ctx: typer.Context, incomplete: str, ask: Callable[["Cluster"], Iterable[str]]) -> list[str]:
    import os

    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.errors import ClientError
    from skidway.cli.output import DEFAULT_BOOTSTRAP
    from skidway.cli.profiles import chosen_settings

    source = ctx.get_parameter_source("bootstrap")
    typed = ctx.params["bootstrap"] if source is not None and source.name == "COMMANDLINE" else None
    try:
        bootstrap = typed or os.environ.get("SKIDWAY_BOOTSTRAP") or chosen_settings().get("bootstrap")
        with Cluster(str(bootstrap or DEFAULT_BOOTSTRAP), client_id="skidway-cli", timeout_ms=ANSWER_MS) as cluster:
            return [name for name in ask(cluster) if name.startswith(incomplete)]
    except (ClientError, OSError, ValueError):
        return []
