"""Which handler serves an API, and in which versions. What is not in `HANDLERS` is not advertised."""

from __future__ import annotations

from skidway.broker.call import Handle, Route
from skidway.broker.forwarding import forwarded
from skidway.broker.handlers import (
    add_raft_voter,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    api_versions,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    end_quorum_epoch,
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
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sync_group,
    unregister_broker,
    vote,
)
from skidway.ports import Buffer
from skidway.wire.registry import api

FETCH_KEY = 1
API_VERSIONS_KEY = 18
INIT_PRODUCER_ID_KEY = 22

HANDLERS: dict[int, Handle] = {
    0: produce.handle,
    FETCH_KEY: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    8: offset_commit.handle,
    9: offset_fetch.handle,
    10: find_coordinator.handle,
    11: join_group.handle,
    12: heartbeat.handle,
    13: leave_group.handle,
    14: sync_group.handle,
    15: describe_groups.handle,
    16: list_groups.handle,
    API_VERSIONS_KEY: api_versions.handle,
    19: forwarded(create_topics.handle),
    20: forwarded(delete_topics.handle),
    21: delete_records.handle,
    INIT_PRODUCER_ID_KEY: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    32: describe_configs.handle,
    33: forwarded(alter_configs.handle),
    35: describe_log_dirs.handle,
    37: forwarded(create_partitions.handle),
    42: delete_groups.handle,
    43: forwarded(elect_leaders.handle),
    44: forwarded(incremental_alter_configs.handle),
    45: forwarded(alter_partition_reassignments.handle),
    46: forwarded(list_partition_reassignments.handle),
    47: offset_delete.handle,
    55: forwarded(describe_quorum.handle),
    60: describe_cluster.handle,
    61: describe_producers.handle,
    64: forwarded(unregister_broker.handle),
    68: consumer_group_heartbeat.handle,
    69: consumer_group_describe.handle,
    74: list_config_resources.handle,
    75: describe_topic_partitions.handle,
    80: forwarded(add_raft_voter.handle),
    81: forwarded(remove_raft_voter.handle),
}
FORWARDED = frozenset({19, 20, 33, 37, 43, 44, 45, 46, 55, 64, 80, 81})
"""Answered by the active controller; any node passes them on."""
# Before this node knows enough of the cluster to serve clients.
EARLY_FOR_CLIENTS = (FETCH_KEY, API_VERSIONS_KEY)
# Among nodes only, and so not advertised to clients.
INTERNAL: dict[int, Handle] = {
    52: vote.handle,
    53: begin_quorum_epoch.handle,
    54: end_quorum_epoch.handle,
    56: alter_partition.handle,
    58: envelope.handle,
    59: fetch_snapshot.handle,
    62: broker_registration.handle,
    63: broker_heartbeat.handle,
    67: allocate_producer_ids.handle,
}
EARLY = {*EARLY_FOR_CLIENTS, *INTERNAL}
# Kafka marks the newest version of InitProducerId as unstable.
VERSION_MAX = {INIT_PRODUCER_ID_KEY: 5}


class Routes(dict[tuple[int, int], Route]):
    """(key, version) -> route, made on first use; KeyError for what is not served."""

    def __init__(self, elements_max: int) -> None:
        super().__init__()
        self.elements_max = elements_max
        self._handlers = {**HANDLERS, **INTERNAL}
        self._served = {
            key: (api(key).versions[0], VERSION_MAX.get(key, api(key).versions[1])) for key in self._handlers
        }
        self.versions = {key: versions for key, versions in sorted(self._served.items()) if key not in INTERNAL}
        """What clients are told."""

    def newest(self, key: int) -> Route:
        return self[key, self._served[key][1]]

    def __missing__(self, key_and_version: tuple[int, int]) -> Route:
        key, version = key_and_version
        first, last = self._served[key]
        if key == API_VERSIONS_KEY and not first <= version <= last:
            return self._api_versions_fallback()
        if not first <= version <= last:
            raise KeyError(key_and_version)
        route = self[key_and_version] = self._build(key, version)
        return route

    def _build(self, key: int, version: int) -> Route:
        served = api(key)
        compiled = served.request.decoder(version)
        elements_max = self.elements_max

        def decode(frame: Buffer, position: int) -> tuple[object, int]:
            return compiled(frame, position, elements_max)

        return Route(
            key,
            served.name,
            version,
            self._handlers[key],
            decode,
            served.response.encoder(version),
            # An ApiVersions reply has the oldest header: its sender does not know what we speak yet.
            tagged_header=served.is_flexible(version) and key != API_VERSIONS_KEY,
            has_slices=key == FETCH_KEY,
            forwarded=key in FORWARDED,
            early=key in EARLY,
        )

    def _api_versions_fallback(self) -> Route:
        served = api(API_VERSIONS_KEY)
        return Route(
            API_VERSIONS_KEY,
            served.name,
            0,
            api_versions.handle_unknown_version,
            lambda frame, position: (None, position),
            served.response.encoder(0),
            tagged_header=False,
            has_slices=False,
        )
