"""The API table: every API that a node serves, one row each.

A row says which handler serves the API, which node answers it, who may call it, and what a caller needs. Everything
else derives from it: which versions ApiVersions advertises, what is forwarded to the controller, what is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

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
from skidway.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    commit_transactions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_quorum_epoch,
    end_txn,
    envelope,
    fetch,
    fetch_snapshot,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    vote,
    write_txn_markers,
)
from skidway.broker.services import Services
from skidway.broker.settings import NodeSettings
from skidway.wire.registry import api

Handle = Callable[[Services, Call, Any], Any]
API_VERSIONS_KEY = 18


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


@dataclass(slots=True, frozen=True)
class ServedApi:
    key: int
    handle: Handle
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
    sends_files: bool = False
    """Whether parts of a response are slices of files."""

    @property
    def versions(self) -> tuple[int, int]:
        first, last = api(self.key).versions
        return first, last if self.version_max is None else self.version_max


def _for_clients(key: int, handle: Handle, *needs: Right) -> ServedApi:
    return ServedApi(key, handle, needs)


def _for_nodes(key: int, handle: Handle) -> ServedApi:
    return ServedApi(key, handle, (cluster(CLUSTER_ACTION),), audience=Audience.NODES, early=True)


def _at_controller(
    key: int, handle: Handle, *needs: Right, stays_here: Callable[[Any], bool] | None = None
) -> ServedApi:
    return ServedApi(key, handle, needs, Where.CONTROLLER, stays_here=stays_here)


_ROWS = (
    ServedApi(
        0,
        produce.handle,
        (topic(WRITE), transactional_id(WRITE)),
        elements_max=25_000,
        elements_at_once=1_000,
    ),
    ServedApi(
        1,
        fetch.handle,
        (topic(READ), cluster(CLUSTER_ACTION)),  # the second for followers
        early=True,  # followers of the metadata log
        elements_max=60_000,
        sends_files=True,
    ),
    _for_clients(2, list_offsets.handle, topic(DESCRIBE)),
    _for_clients(3, metadata.handle, topic(DESCRIBE), topic(CREATE), cluster(CREATE)),
    _for_clients(8, offset_commit.handle, group(READ), topic(READ)),
    _for_clients(9, offset_fetch.handle, group(DESCRIBE), topic(DESCRIBE)),
    _for_clients(10, find_coordinator.handle, group(DESCRIBE), transactional_id(DESCRIBE), cluster(CLUSTER_ACTION)),
    _for_clients(11, join_group.handle, group(READ)),
    _for_clients(12, heartbeat.handle, group(READ)),
    _for_clients(13, leave_group.handle, group(READ)),
    _for_clients(14, sync_group.handle, group(READ)),
    _for_clients(15, describe_groups.handle, group(DESCRIBE)),
    _for_clients(16, list_groups.handle, cluster(DESCRIBE), group(DESCRIBE)),
    ServedApi(API_VERSIONS_KEY, api_versions.handle, (), early=True),
    _at_controller(19, create_topics.handle, cluster(CREATE), topic(CREATE), topic(DESCRIBE_CONFIGS)),
    _at_controller(20, delete_topics.handle, cluster(DELETE), topic(DELETE), topic(DESCRIBE)),
    _for_clients(21, delete_records.handle, topic(DELETE)),
    # Kafka marks the newest version of InitProducerId as unstable.
    ServedApi(
        22, init_producer_id.handle, (transactional_id(WRITE), cluster(IDEMPOTENT_WRITE), topic(WRITE)), version_max=5
    ),
    _for_clients(23, offset_for_leader_epoch.handle, cluster(CLUSTER_ACTION), topic(DESCRIBE)),
    _for_clients(29, describe_acls.handle, cluster(DESCRIBE)),
    _for_clients(30, create_acls.handle, cluster(ALTER)),
    _for_clients(31, delete_acls.handle, cluster(ALTER)),
    _for_clients(
        32, describe_configs.handle, topic(DESCRIBE_CONFIGS), group(DESCRIBE_CONFIGS), cluster(DESCRIBE_CONFIGS)
    ),
    _at_controller(33, alter_configs.handle, topic(ALTER_CONFIGS), group(ALTER_CONFIGS), cluster(ALTER_CONFIGS)),
    _for_clients(34, alter_replica_log_dirs.handle, cluster(ALTER)),
    _for_clients(35, describe_log_dirs.handle, cluster(DESCRIBE)),
    _at_controller(37, create_partitions.handle, topic(ALTER)),
    _for_clients(42, delete_groups.handle, group(DELETE)),
    _at_controller(43, elect_leaders.handle, cluster(ALTER)),
    _at_controller(
        44,
        incremental_alter_configs.handle,
        topic(ALTER_CONFIGS),
        group(ALTER_CONFIGS),
        cluster(ALTER_CONFIGS),
        stays_here=alters_only_log_levels,
    ),
    _at_controller(45, alter_partition_reassignments.handle, cluster(ALTER)),
    _at_controller(46, list_partition_reassignments.handle, cluster(DESCRIBE)),
    _for_clients(47, offset_delete.handle, group(DELETE), topic(READ)),
    _for_nodes(52, vote.handle),
    _for_nodes(53, begin_quorum_epoch.handle),
    _for_nodes(54, end_quorum_epoch.handle),
    _at_controller(55, describe_quorum.handle, cluster(DESCRIBE)),
    _for_nodes(56, alter_partition.handle),
    _for_nodes(58, envelope.handle),
    _for_nodes(59, fetch_snapshot.handle),
    _for_clients(60, describe_cluster.handle, cluster(DESCRIBE)),
    _for_clients(61, describe_producers.handle, topic(READ)),
    _for_nodes(62, broker_registration.handle),
    _for_nodes(63, broker_heartbeat.handle),
    _at_controller(64, unregister_broker.handle, cluster(ALTER)),
    _for_nodes(67, allocate_producer_ids.handle),
    _for_clients(68, consumer_group_heartbeat.handle, group(READ), topic(DESCRIBE)),
    _for_clients(69, consumer_group_describe.handle, group(DESCRIBE), topic(DESCRIBE)),
    _for_nodes(73, assign_replicas_to_dirs.handle),
    _for_clients(74, list_config_resources.handle, cluster(DESCRIBE_CONFIGS)),
    _for_clients(75, describe_topic_partitions.handle, topic(DESCRIBE)),
    _at_controller(80, add_raft_voter.handle, cluster(ALTER)),
    _at_controller(81, remove_raft_voter.handle, cluster(ALTER)),
)
SERVED: dict[int, ServedApi] = {row.key: row for row in _ROWS}
"""By key, in the order of keys."""
_TRANSACTION_ROWS = (
    _for_clients(24, add_partitions_to_txn.handle, transactional_id(WRITE), topic(WRITE), cluster(CLUSTER_ACTION)),
    _for_clients(25, add_offsets_to_txn.handle, transactional_id(WRITE), group(READ)),
    _for_clients(26, end_txn.handle, transactional_id(WRITE)),
    # Of coordinators, and of admins that end what hangs.
    _for_clients(27, write_txn_markers.handle, cluster(ALTER), cluster(CLUSTER_ACTION)),
    _for_clients(28, txn_offset_commit.handle, transactional_id(WRITE), group(READ), topic(READ)),
    _for_clients(65, describe_transactions.handle, transactional_id(DESCRIBE), topic(DESCRIBE)),
    _for_clients(66, list_transactions.handle, transactional_id(DESCRIBE)),
    _for_clients(30000, commit_transactions.handle, transactional_id(WRITE)),
)
EXPERIMENTAL: dict[int, ServedApi] = {row.key: row for row in _TRANSACTION_ROWS}
"""Served beside the others where `experimental_transactions` is on."""
assert list(SERVED) == sorted(row.key for row in _ROWS), "one row for each key"
assert list(EXPERIMENTAL) == sorted(row.key for row in _TRANSACTION_ROWS), "one row for each key"
assert not SERVED.keys() & EXPERIMENTAL.keys(), "one row for each key"


def rows_of(settings: NodeSettings) -> dict[int, ServedApi]:
    """What a node serves, by key."""
    if not settings.experimental_transactions:
        return SERVED
    return dict(sorted({**SERVED, **EXPERIMENTAL}.items()))
