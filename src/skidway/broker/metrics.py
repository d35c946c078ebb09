"""What a node measures of itself, pulled: whoever wants it walks the node, and the node does nothing for it before.

Counters are integers that others bump in place (`Route`, `Traffic`, `Counts`, `Syncs`); everything else is read off
the state there is. `samples` goes in steps, so that a node with thousands of partitions serves meanwhile; the numbers
of two steps are then not of one instant.

The number of samples has a bound. Those of single topics and partitions are for the first `PARTITIONS_MAX` partitions,
and what is left out is counted; sums go over all of them. No label has a value that a client made up, but for the
names of topics.

Names and meaning are those of Kafka's JMX metrics, as its Prometheus exporters write them, wherever there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.traffic import Traffic
from skidway.errors import ErrorCode
from skidway.runtime.distribution import Distribution
from skidway.steps import Steps

if TYPE_CHECKING:
    from skidway.broker.node import Node

PARTITIONS_MAX = 2_000
PARTITIONS_PER_STEP = 50
PRODUCE_KEY, FETCH_KEY = 0, 1
STARTING, RECOVERING, RUNNING, LEAVING = 1, 2, 3, 6
"""Kafka's numbers for the state of a broker."""


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Of times, in seconds. Its samples have a `Distribution`."""


class Metric(Struct, frozen=True):
    name: str
    kind: Kind
    labels: tuple[str, ...] = ()


class Sample(Struct, frozen=True):
    metric: Metric
    values: tuple[str, ...]
    """Of its labels."""
    value: int | float | Distribution


Take = Callable[[Sample], None]

_TOPIC, _PARTITION = ("topic",), ("topic", "partition")


def _counter(name: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, labels)


def _gauge(name: str, *labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, labels)


REQUESTS = _counter("kafka_network_requestmetrics_requests_total", "request", "version")
REQUEST_BYTES = _counter("kafka_network_requestmetrics_requestbytes_total", "request", "version")
ERRORS = _counter("kafka_network_requestmetrics_errors_total", "request", "error")
WAITED = _counter("skidway_requests_waited_total", "request", "version")
WAITED_MS = _counter("skidway_requests_waited_milliseconds_total", "request", "version")
WAIT_SECONDS = Metric("skidway_requests_waited_seconds", Kind.HISTOGRAM, ("request",))
LONGEST_WAIT_MS = _gauge("skidway_requests_longest_wait_milliseconds", "request", "version")
PRODUCE_REQUESTS = _counter("kafka_server_brokertopicmetrics_totalproducerequests_total")
FETCH_REQUESTS = _counter("kafka_server_brokertopicmetrics_totalfetchrequests_total")
FAILED_PRODUCE = _counter("kafka_server_brokertopicmetrics_failedproducerequests_total")
FAILED_FETCH = _counter("kafka_server_brokertopicmetrics_failedfetchrequests_total")
TRAFFIC = (
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_replicationbytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_replicationbytesout_total",
)
NODE_TRAFFIC = tuple(_counter(name) for name in TRAFFIC)
TOPIC_TRAFFIC = tuple(_counter(name, "topic") for name in TRAFFIC)
LOG_SIZE = _gauge("kafka_log_log_size", *_PARTITION)
LOG_START = _gauge("kafka_log_log_logstartoffset", *_PARTITION)
LOG_END = _gauge("kafka_log_log_logendoffset", *_PARTITION)
REPLICAS = _gauge("kafka_cluster_partition_replicascount", *_PARTITION)
IN_SYNC_REPLICAS = _gauge("kafka_cluster_partition_insyncreplicascount", *_PARTITION)
UNDER_REPLICATED = _gauge("kafka_cluster_partition_underreplicated", *_PARTITION)
UNDER_MIN_ISR = _gauge("kafka_cluster_partition_underminisr", *_PARTITION)
AT_MIN_ISR = _gauge("kafka_cluster_partition_atminisr", *_PARTITION)
PARTITION_COUNT = _gauge("kafka_server_replicamanager_partitioncount")
LEADER_COUNT = _gauge("kafka_server_replicamanager_leadercount")
UNDER_REPLICATED_COUNT = _gauge("kafka_server_replicamanager_underreplicatedpartitions")
UNDER_MIN_ISR_COUNT = _gauge("kafka_server_replicamanager_underminisrpartitioncount")
AT_MIN_ISR_COUNT = _gauge("kafka_server_replicamanager_atminisrpartitioncount")
ISR_SHRINKS = _counter("kafka_server_replicamanager_isrshrinks_total")
ISR_EXPANDS = _counter("kafka_server_replicamanager_isrexpands_total")
PARKED = _gauge("kafka_server_delayedoperationpurgatory_purgatorysize", "delayedOperation")
CONNECTIONS = _gauge("kafka_server_socket_server_metrics_connection_count")
CONNECTIONS_OPENED = _counter("kafka_server_socket_server_metrics_connection_creation_total")
BROKER_STATE = _gauge("kafka_server_kafkaserver_brokerstate")
OFFLINE_DIRECTORIES = _gauge("kafka_log_logmanager_offlinelogdirectorycount")
GROUPS = _gauge("kafka_coordinator_group_groupmetadatamanager_numgroups")
ACTIVE_CONTROLLERS = _gauge("kafka_controller_kafkacontroller_activecontrollercount")
TOPICS = _gauge("kafka_controller_kafkacontroller_globaltopiccount")
FENCED_BROKERS = _gauge("kafka_controller_kafkacontroller_fencedbrokercount")
LEADERS_ELECTED = _counter("kafka_controller_controllerstats_leaderelections_total")
QUORUM_LEADER = _gauge("kafka_server_raft_metrics_current_leader")
QUORUM_EPOCH = _gauge("kafka_server_raft_metrics_current_epoch")
QUORUM_WATERMARK = _gauge("kafka_server_raft_metrics_high_watermark")
QUORUM_END = _gauge("kafka_server_raft_metrics_log_end_offset")
SYNCS = _counter("skidway_syncs_total")
SYNC_FAILURES = _counter("skidway_sync_failures_total")
EVENTS = _counter("skidway_events_total", "kind")
LETTERS_WRITTEN = _counter("skidway_dead_letters_written_total")
LETTERS_GIVEN_UP = _counter("skidway_dead_letters_given_up_total")
DISK_TOTAL = _gauge("skidway_disk_total_bytes")
DISK_FREE = _gauge("skidway_disk_free_bytes")
QUARANTINED = _gauge("skidway_partitions_quarantined")
LEFT_OUT = _gauge("skidway_metrics_left_out")


def samples(node: Node, take: Take) -> Steps[None]:
    """Give all that there is now to `take`, in steps."""
    _requests(node, take)
    yield None
    _node(node, take)
    yield None
    _cluster(node, take)
    yield None
    yield from _partitions(node, take)


def _requests(node: Node, take: Take) -> None:
    asked = {PRODUCE_KEY: [0, 0], FETCH_KEY: [0, 0]}
    errors: dict[tuple[str, str], int] = {}
    times: dict[str, Distribution] = {}
    for route in list(node.routes.values()):
        values = route.name, str(route.version)
        take(Sample(REQUESTS, values, route.requests))
        take(Sample(REQUEST_BYTES, values, route.request_bytes))
        take(Sample(WAITED, values, route.waits.count))
        take(Sample(WAITED_MS, values, route.waits.total_ms))
        take(Sample(LONGEST_WAIT_MS, values, route.waits.longest_ms))
        if route.waits.count:
            times.setdefault(route.name, Distribution()).merge(route.waits.times)
        for code, number in route.errors.items():
            named = route.name, _error_name(code)
            errors[named] = errors.get(named, 0) + number
        if route.key in asked:
            asked[route.key][0] += route.requests
            asked[route.key][1] += sum(route.errors.values())
    for named, number in errors.items():
        take(Sample(ERRORS, named, number))
    for name, distribution in times.items():
        take(Sample(WAIT_SECONDS, (name,), distribution))
    for metric, (number, _) in zip((PRODUCE_REQUESTS, FETCH_REQUESTS), asked.values(), strict=True):
        take(Sample(metric, (), number))
    for metric, (_, refused) in zip((FAILED_PRODUCE, FAILED_FETCH), asked.values(), strict=True):
        take(Sample(metric, (), refused))


def _error_name(code: int) -> str:
    """One that another node made up gets no label of its own."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else "OTHER"


def _node(node: Node, take: Take) -> None:
    counts = node.counts
    total, free = node.world.disk.usage()
    take(Sample(CONNECTIONS, (), counts.connections_opened - counts.connections_closed))
    take(Sample(CONNECTIONS_OPENED, (), counts.connections_opened))
    take(Sample(BROKER_STATE, (), _state(node)))
    take(Sample(OFFLINE_DIRECTORIES, (), int(node.failure is not None)))
    take(Sample(GROUPS, (), sum(len(each.host.machine.groups) for each in node.rooms.services.groups.loaded.values())))
    take(Sample(PARKED, ("Produce",), len(node.waiting.acknowledgements)))
    take(Sample(PARKED, ("Fetch",), node.waiting.polls.waits + node.waiting.stable_polls.waits))
    take(Sample(PARKED, ("DeleteRecords",), len(node.waiting.deletions)))
    take(Sample(ISR_SHRINKS, (), counts.in_sync_shrinks))
    take(Sample(ISR_EXPANDS, (), counts.in_sync_expands))
    take(Sample(SYNCS, (), node.rooms.syncs.done))
    take(Sample(SYNC_FAILURES, (), node.rooms.syncs.failed))
    letters = node.rooms.services.share_fetches.partitions.office
    take(Sample(LETTERS_WRITTEN, (), letters.written))
    take(Sample(LETTERS_GIVEN_UP, (), letters.given_up))
    take(Sample(DISK_TOTAL, (), total))
    take(Sample(DISK_FREE, (), free))
    for kind, count in counts.events.items():
        take(Sample(EVENTS, (kind.__name__,), count))


def _state(node: Node) -> int:
    if node.rooms.registration.leaving:
        return LEAVING
    if node.serving:
        return RUNNING
    return RECOVERING if node.opening else STARTING


def _cluster(node: Node, take: Take) -> None:
    quorum, active = node.quorum, node.controls
    take(Sample(ACTIVE_CONTROLLERS, (), int(active)))
    take(Sample(TOPICS, (), len(node.image.topics) if active else 0))
    fenced = sum(broker.fenced for broker in node.image.brokers.values())
    take(Sample(FENCED_BROKERS, (), fenced if active else 0))
    take(Sample(LEADERS_ELECTED, (), node.counts.leaders_elected))
    take(Sample(QUORUM_LEADER, (), quorum.leader_id))
    take(Sample(QUORUM_EPOCH, (), quorum.quorum.epoch))
    take(Sample(QUORUM_WATERMARK, (), quorum.quorum.high_watermark))
    take(Sample(QUORUM_END, (), quorum.log.end_offset))


def _partitions(node: Node, take: Take) -> Steps[None]:
    # What comes or goes between two steps is seen by the next walk.
    partitions = list(node.partitions)
    all_traffic = Traffic()
    all_traffic.add(node.counts.former_traffic)
    leads = under_replicated = under_min = at_min = quarantined = 0
    topic, topic_traffic = "", Traffic()
    for number, partition in enumerate(partitions):
        if number % PARTITIONS_PER_STEP == 0:
            yield None
        is_shown = number < PARTITIONS_MAX
        if partition.topic != topic:
            if topic:
                _traffic(take, TOPIC_TRAFFIC, (topic,), topic_traffic)
            topic, topic_traffic = partition.topic if is_shown else "", Traffic()
        all_traffic.add(partition.traffic)
        topic_traffic.add(partition.traffic)
        quarantined += partition.log.quarantined
        if is_shown:
            _log(take, partition)
        if partition.leads:
            leads += 1
            standing = _standing(partition)
            under_replicated += standing[0]
            under_min += standing[1]
            at_min += standing[2]
            if is_shown:
                _replicas(take, partition, standing)
    if topic:
        _traffic(take, TOPIC_TRAFFIC, (topic,), topic_traffic)
    _traffic(take, NODE_TRAFFIC, (), all_traffic)
    take(Sample(PARTITION_COUNT, (), len(partitions)))
    take(Sample(LEADER_COUNT, (), leads))
    take(Sample(UNDER_REPLICATED_COUNT, (), under_replicated))
    take(Sample(UNDER_MIN_ISR_COUNT, (), under_min))
    take(Sample(AT_MIN_ISR_COUNT, (), at_min))
    take(Sample(QUARANTINED, (), quarantined))
    take(Sample(LEFT_OUT, (), max(0, len(partitions) - PARTITIONS_MAX)))


def _traffic(take: Take, metrics: tuple[Metric, ...], values: tuple[str, ...], traffic: Traffic) -> None:
    numbers = (
        traffic.records_in,
        traffic.bytes_in,
        traffic.bytes_followed,
        traffic.bytes_out,
        traffic.bytes_to_followers,
    )
    for metric, number in zip(metrics, numbers, strict=True):
        take(Sample(metric, values, number))


def _log(take: Take, partition: Partition) -> None:
    values, log = (partition.topic, str(partition.index)), partition.log
    take(Sample(LOG_SIZE, values, log.size()))
    take(Sample(LOG_START, values, log.start_offset))
    take(Sample(LOG_END, values, log.end_offset))


def _standing(partition: Partition) -> tuple[bool, bool, bool]:
    """Whether it is under-replicated, below its min.insync.replicas, just at it."""
    leader = partition.leader
    in_sync, replicas = len(leader.in_sync), len(leader.replicas)
    wanted = min(leader.min_in_sync, replicas)
    return in_sync < replicas, in_sync < wanted, in_sync == wanted


def _replicas(take: Take, partition: Partition, standing: tuple[bool, bool, bool]) -> None:
    values, leader = (partition.topic, str(partition.index)), partition.leader
    take(Sample(REPLICAS, values, len(leader.replicas)))
    take(Sample(IN_SYNC_REPLICAS, values, len(leader.in_sync)))
    for metric, is_so in zip((UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR), standing, strict=True):
        take(Sample(metric, values, int(is_so)))
