"""Puts the broker's node together from its settings and the real machine's disk, clock and randomness."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from skidway.broker.listeners import Listeners, ListenerSpec
from skidway.broker.metrics import Take
from skidway.ports import Clock, Random
from skidway.server.addresses import parse_nodes
from skidway.server.config import Settings
from skidway.server.disk import RealDisk
from skidway.server.loggers import PythonLoggers
from skidway.server.measures import ShellMeasures
from skidway.server.served import Door, ServedConnection, WholeNode


def make_node(settings: Settings, listeners: Listeners, disk: RealDisk, clock: Clock, random: Random) -> WholeNode:
    """The node, not opened yet. Imported here: flags and settings are checked before the broker is loaded."""
    from skidway.broker.node import Node
    from skidway.broker.settings import NodeSettings
    from skidway.server.clock import SystemZones
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
        shares=settings.shares,
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
        SystemZones(),
    )


class HttpDoor:
    """Who answers HTTP in front of the node. The gateway is made with the first connection: a start does without."""

    __slots__ = ("_gateway", "_make")

    def __init__(self, make: Callable[[], Door]) -> None:
        self._make = make
        self._gateway: Door | None = None

    def connect(self, peer: str, listener: str) -> ServedConnection:
        if self._gateway is None:
            self._gateway = self._make()
        return self._gateway.connect(peer, listener)


HTTP_MODULES = (
    *("gateways.http.head", "gateways.http.routes", "gateways.queues.types", "gateways.queues.catalog"),
    *("gateways.queues.sending", "gateways.queues.receiving", "gateways.queues.service", "gateways.http.topics.rows"),
    *("gateways.http.queues.rows", "gateways.http.sockets.session", "gateways.http.confluent.rows"),
    *("gateways.sqs.shapes", "gateways.sqs.query_protocol", "gateways.sqs.asking", "gateways.sqs.handlers.table"),
    *("gateways.http.gateway", "server.metrics"),
)
"""What such a gateway needs, in pieces that take a few milliseconds each. The last ones need all the others."""


def make_http_door(node: WholeNode, settings: Settings, listener: ListenerSpec, measures: ShellMeasures) -> Door:
    secrets = settings.sqs_secrets()

    def samples(take: Take) -> None:
        from skidway.server.metrics import process_samples, shell_samples

        shell_samples(measures, take)
        process_samples(take)

    def make() -> Door:
        from skidway.broker.node import Node
        from skidway.gateways.http.gateway import HttpGateway

        assert isinstance(node, Node), "HTTP is in front of a broker's node"
        return HttpGateway(node, listener, samples, secrets)

    return HttpDoor(make)


def load_http() -> Iterator[Callable[[], Any]]:
    """The pieces of it, one after the other."""
    return (partial(import_module, f"skidway.{name}") for name in HTTP_MODULES)


def hangup_type() -> type[Exception]:
    from skidway.broker.api.call import Hangup

    return Hangup
