"""Puts the broker's node together from its settings and the real machine's disk, clock and randomness."""

from typing import Any

from skidway.broker.listeners import Listeners
from skidway.ports import Clock, Random
from skidway.server.addresses import parse_nodes
from skidway.server.config import Settings
from skidway.server.disk import RealDisk
from skidway.server.loggers import PythonLoggers


def make_node(settings: Settings, listeners: Listeners, disk: RealDisk, clock: Clock, random: Random) -> Any:
    """The node, not opened yet. Imported here: flags and settings are checked before the broker is loaded."""
    from skidway.broker.node import Node
    from skidway.broker.settings import NodeSettings
    from skidway.server.compactor import ChildCompactor
    from skidway.server.events import EventLog

    peers = parse_nodes(settings.peer_addresses or "")
    node_settings = NodeSettings(
        node_id=settings.node_id,
        listeners=listeners,
        data_dir=str(disk.root),
        cluster_id=settings.cluster_id,
        auto_create_topics=settings.auto_create_topics,
        default_partitions=settings.default_partitions,
        default_replication_factor=settings.default_replication_factor,
        topic_defaults={"flush": settings.flush, **settings.topic_defaults},
        groups=settings.groups,
        transactions=settings.transactions,
        voters=settings.voter_list(),
        roles=settings.role_set(),
        rack=settings.rack,
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_ms=settings.heartbeat_ms,
        replica_lag_ms=settings.replica_lag_ms,
        quorum=settings.quorum,
        peer_addresses={node_id: (address.host, address.port) for node_id, address in peers.items()},
        retention_check_ms=settings.retention_check_ms,
        checkpoint_ms=settings.checkpoint_ms,
        compaction_check_ms=settings.compaction_check_ms,
        scrub_interval_ms=settings.scrub_interval_ms,
        scrub_bytes_per_second=settings.scrub_bytes_per_second,
        experimental_transactions=settings.experimental_transactions,
        send_buffer_bytes=settings.send_buffer_bytes,
    )
    node_settings.validate()
    compactor = ChildCompactor(disk.root)
    events, loggers = EventLog(clock), PythonLoggers()
    return Node(
        node_settings,
        disk,
        clock,
        random,
        settings.limits,
        compactor,
        events.report,
        loggers,
    )


def hangup_type() -> type[Exception]:
    from skidway.broker.api.call import Hangup

    return Hangup
