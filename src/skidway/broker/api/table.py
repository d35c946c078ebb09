"""The API table: every API that a node serves, one row each.

A row says which handler serves the API, which node answers it, who may call it, and what a caller needs. Everything
else derives from it: which versions ApiVersions advertises, what is forwarded to the controller, what is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import Any

import msgspec

from skidway.broker.api.call import Call
from skidway.broker.api.log_levels import alters_only_log_levels
from skidway.broker.api.rights import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    IDEMPOTENT_WRITE,
    READ,
    WRITE,
    Right,
    cluster,
    group,
    topic,
    transactional_id,
)
from skidway.broker.services import Services
from skidway.wire.registry import api

Handle = Callable[[Services, Call, Any], Any]
API_VERSIONS_KEY = 18
FEW = 1_000
"""Elements of requests in which nodes need but a handful."""


class Where(Enum):
    """Which node answers."""

    HERE = "here"
    """The node that is asked."""
    CONTROLLER = "controller"
    """The active controller; any other node forwards the request to it."""


class Audience(Enum):
    """Who may call."""

    CLIENTS = "clients"
    NODES = "nodes"
    """Only nodes of this cluster. ApiVersions does not advertise it."""


class ServedApi(msgspec.Struct, frozen=True):
    key: int
    handler: str
    """The module of `broker/handlers` that serves it. It is loaded with the first request: a start does without."""
    needs: tuple[Right, ...]
    """The rights that a request may need. What the request asks for decides which of them it does need; without any
    here, everybody may call."""
    where: Where = Where.HERE
    audience: Audience = Audience.CLIENTS
    early: bool = False
    """Served while the node starts, before it knows enough of the cluster for clients."""
    stays_here: Callable[[Any], bool] | None = None
    """Requests that the node that is asked answers, although the API is the controller's."""
    version_max: int | None = None
    """The newest version that is served, if that is not the newest of the protocol."""
    elements_max: int | None = None
    """Topics and partitions in one request, where `limits.request_elements_max` is far more than a broker has
    (`limits.partitions_max`)."""
    elements_at_once: int | None = None
    """A large request with no more topics and partitions than this is decoded in one go, others in steps. Most of a
    large Produce request is batches, and it has few elements."""
    of_shares: bool = False
    """Of share groups, which a cluster may have turned off (`share.version`)."""
    sends_files: bool = False
    """Whether parts of a response are slices of files."""
    takes: bool = False
    """Whether a reply takes from others what its peer gets: nobody must have it in vain, so a peer that has closed its
    side does not wait any more."""

    @property
    def handle(self) -> Handle:
        handle: Handle = self.load().handle
        return handle

    def load(self) -> Any:
        return import_module(f"skidway.broker.handlers.{self.handler}")

    @property
    def versions(self) -> tuple[int, int]:
        first, last = api(self.key).versions
        return first, last if self.version_max is None else self.version_max


def _for_clients(key: int, handler: str, *needs: Right) -> ServedApi:
    return ServedApi(key, handler, needs)


def _of_shares(
    key: int, handler: str, *needs: Right, elements_max: int | None = None, sends_files: bool = False
) -> ServedApi:
    return ServedApi(key, handler, needs, of_shares=True, elements_max=elements_max, sends_files=sends_files)


def _of_queues(key: int, handler: str, right: Right, **more: Any) -> ServedApi:
    """The second right is for the doors of other nodes: they know before what their clients may do. Served early, as
    all that nodes ask each other."""
    return ServedApi(key, handler, (right, cluster(CLUSTER_ACTION)), early=True, **more)


def _for_nodes(key: int, handler: str, *, elements_max: int | None = None) -> ServedApi:
    return ServedApi(
        key, handler, (cluster(CLUSTER_ACTION),), audience=Audience.NODES, early=True, elements_max=elements_max
    )


def _at_controller(key: int, handler: str, *needs: Right, stays_here: Callable[[Any], bool] | None = None) -> ServedApi:
    return ServedApi(key, handler, needs, Where.CONTROLLER, stays_here=stays_here)


_ROWS = (
    ServedApi(
        0,
        "produce",
        (topic(WRITE), transactional_id(WRITE)),
        elements_max=25_000,
        elements_at_once=1_000,
    ),
    ServedApi(
        1,
        "fetch",
        (topic(READ), cluster(CLUSTER_ACTION)),  # the second for followers
        early=True,  # followers of the metadata log
        elements_max=60_000,
        sends_files=True,
    ),
    _for_clients(2, "list_offsets", topic(DESCRIBE)),
    _for_clients(3, "metadata", topic(DESCRIBE), topic(CREATE), cluster(CREATE)),
    _for_clients(8, "offset_commit", group(READ), topic(READ)),
    _for_clients(9, "offset_fetch", group(DESCRIBE), topic(DESCRIBE)),
    _for_clients(10, "find_coordinator", group(DESCRIBE), transactional_id(DESCRIBE), cluster(CLUSTER_ACTION)),
    _for_clients(11, "join_group", group(READ)),
    _for_clients(12, "heartbeat", group(READ)),
    _for_clients(13, "leave_group", group(READ)),
    _for_clients(14, "sync_group", group(READ)),
    _for_clients(15, "describe_groups", group(DESCRIBE)),
    _for_clients(16, "list_groups", cluster(DESCRIBE), group(DESCRIBE)),
    ServedApi(API_VERSIONS_KEY, "api_versions", (), early=True),
    _at_controller(19, "create_topics", cluster(CREATE), topic(CREATE), topic(DESCRIBE_CONFIGS)),
    _at_controller(20, "delete_topics", cluster(DELETE), topic(DELETE), topic(DESCRIBE)),
    _for_clients(21, "delete_records", topic(DELETE)),
    # Kafka marks the newest version of InitProducerId as unstable.
    ServedApi(
        22, "init_producer_id", (transactional_id(WRITE), cluster(IDEMPOTENT_WRITE), topic(WRITE)), version_max=5
    ),
    _for_clients(23, "offset_for_leader_epoch", cluster(CLUSTER_ACTION), topic(DESCRIBE)),
    _for_clients(24, "add_partitions_to_txn", transactional_id(WRITE), topic(WRITE), cluster(CLUSTER_ACTION)),
    _for_clients(25, "add_offsets_to_txn", transactional_id(WRITE), group(READ)),
    _for_clients(26, "end_txn", transactional_id(WRITE)),
    # Of coordinators, and of admins that end what hangs.
    _for_clients(27, "write_txn_markers", cluster(ALTER), cluster(CLUSTER_ACTION)),
    _for_clients(28, "txn_offset_commit", transactional_id(WRITE), group(READ), topic(READ)),
    _for_clients(29, "describe_acls", cluster(DESCRIBE)),
    _for_clients(30, "create_acls", cluster(ALTER)),
    _for_clients(31, "delete_acls", cluster(ALTER)),
    _for_clients(32, "describe_configs", topic(DESCRIBE_CONFIGS), group(DESCRIBE_CONFIGS), cluster(DESCRIBE_CONFIGS)),
    _at_controller(33, "alter_configs", topic(ALTER_CONFIGS), group(ALTER_CONFIGS), cluster(ALTER_CONFIGS)),
    _for_clients(34, "alter_replica_log_dirs", cluster(ALTER)),
    _for_clients(35, "describe_log_dirs", cluster(DESCRIBE)),
    _at_controller(37, "create_partitions", topic(ALTER)),
    _for_clients(42, "delete_groups", group(DELETE)),
    _at_controller(43, "elect_leaders", cluster(ALTER)),
    _at_controller(
        44,
        "incremental_alter_configs",
        topic(ALTER_CONFIGS),
        group(ALTER_CONFIGS),
        cluster(ALTER_CONFIGS),
        stays_here=alters_only_log_levels,
    ),
    _at_controller(45, "alter_partition_reassignments", cluster(ALTER)),
    _at_controller(46, "list_partition_reassignments", cluster(DESCRIBE)),
    _for_clients(47, "offset_delete", group(DELETE), topic(READ)),
    _for_nodes(52, "vote", elements_max=FEW),
    _for_nodes(53, "begin_quorum_epoch", elements_max=FEW),
    _for_nodes(54, "end_quorum_epoch", elements_max=FEW),
    _at_controller(55, "describe_quorum", cluster(DESCRIBE)),
    _for_nodes(56, "alter_partition"),
    _at_controller(57, "update_features", cluster(ALTER)),
    _for_nodes(58, "envelope"),
    _for_nodes(59, "fetch_snapshot", elements_max=FEW),
    _for_clients(60, "describe_cluster", cluster(DESCRIBE)),
    _for_clients(61, "describe_producers", topic(READ)),
    _for_nodes(62, "broker_registration", elements_max=FEW),
    _for_nodes(63, "broker_heartbeat", elements_max=FEW),
    _at_controller(64, "unregister_broker", cluster(ALTER)),
    _for_clients(65, "describe_transactions", transactional_id(DESCRIBE), topic(DESCRIBE)),
    _for_clients(66, "list_transactions", transactional_id(DESCRIBE)),
    _for_nodes(67, "allocate_producer_ids", elements_max=FEW),
    _for_clients(68, "consumer_group_heartbeat", group(READ), topic(DESCRIBE)),
    _for_clients(69, "consumer_group_describe", group(DESCRIBE), topic(DESCRIBE)),
    _for_nodes(73, "assign_replicas_to_dirs"),
    _for_clients(74, "list_config_resources", cluster(DESCRIBE_CONFIGS)),
    _for_clients(75, "describe_topic_partitions", topic(DESCRIBE)),
    _of_shares(76, "share_group_heartbeat", group(READ), topic(DESCRIBE), elements_max=40_000),
    _of_shares(77, "share_group_describe", group(DESCRIBE), topic(DESCRIBE)),
    _of_shares(78, "share_fetch", group(READ), topic(READ), elements_max=60_000, sends_files=True),
    _of_shares(79, "share_acknowledge", group(READ), topic(READ), elements_max=60_000),
    _at_controller(80, "add_raft_voter", cluster(ALTER)),
    _at_controller(81, "remove_raft_voter", cluster(ALTER)),
    _for_nodes(83, "initialize_share_group_state"),
    _for_nodes(84, "read_share_group_state"),
    _for_nodes(85, "write_share_group_state"),
    _for_nodes(86, "delete_share_group_state"),
    _for_nodes(87, "read_share_group_state_summary"),
    _of_shares(90, "describe_share_group_offsets", group(DESCRIBE), topic(DESCRIBE)),
    _of_shares(91, "alter_share_group_offsets", group(READ), topic(READ)),
    _of_shares(92, "delete_share_group_offsets", group(DELETE), topic(READ)),
    _for_clients(30000, "commit_transactions", transactional_id(WRITE)),
    _of_queues(30001, "receive_messages", topic(READ), elements_max=5_000, sends_files=True, takes=True),
    _of_queues(30002, "settle_messages", topic(READ), elements_max=5_000),
    _of_queues(30003, "count_messages", topic(DESCRIBE), elements_max=5_000),
    _of_queues(30004, "send_messages", topic(WRITE)),
    ServedApi(
        30005,
        "manage_schedules",
        (topic(WRITE), topic(DESCRIBE), cluster(CLUSTER_ACTION)),  # the last for doors of other nodes, as above
        early=True,
        elements_max=20_000,
    ),
    _of_shares(30010, "describe_share_delivery", group(DESCRIBE), topic(DESCRIBE)),
)
SERVED: dict[int, ServedApi] = {row.key: row for row in _ROWS}
"""By key, in the order of keys."""
assert list(SERVED) == sorted(row.key for row in _ROWS), "one row for each key"
