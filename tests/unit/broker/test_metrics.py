"""Metrics are pulled: a walk over a node that served some requests finds what it did, within a bound of samples."""

import sys
from types import FrameType
from typing import Any

import pytest
from broker_world import Peer, World, batch, code, part
from nodes_together import create, made
from nodes_together import produce as produce_to

from skidway.broker import metrics
from skidway.broker.metrics import Sample, samples
from skidway.broker.node import Node
from skidway.runtime.distribution import BOUNDS_MS
from skidway.steps import at_once

Key = tuple[str, tuple[str, ...]]


def pulled(node: Node) -> dict[Key, Any]:
    found: list[Sample] = []
    at_once(samples(node, found.append))
    for sample in found:
        assert len(sample.values) == len(sample.metric.labels), sample
    values = {(sample.metric.name, sample.values): sample.value for sample in found}
    assert len(values) == len(found), "each set of labels comes once"
    return values


def produce(peer: Peer, topic: str, *values: bytes) -> Any:
    entry = part("Produce", "PartitionProduceData", 0, batch(*values))
    topics = [part("Produce", "TopicProduceData", topic, partition_data=[entry])]
    return peer.call("Produce", acks=1, timeout_ms=5000, topic_data=topics)


def fetch(peer: Peer, topic: str) -> Any:
    asked = part("Fetch", "FetchPartition", 0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [part("Fetch", "FetchTopic", topic, partitions=[asked])]
    return peer.call("Fetch", max_wait_ms=0, min_bytes=1, topics=topics)


def only(found: dict[Key, int | float], name: str) -> int | float:
    return found[name, ()]


def test_what_a_node_did_is_found() -> None:
    world = World()
    peer, other = world.peer(), world.peer()
    peer.create("t", flush="sync")
    for values in ((b"a", b"b"), (b"c",)):
        assert code(produce(peer, "t", *values)) == 0
    assert code(produce(peer, "missing", b"a")) != 0
    read = fetch(peer, "t").responses[0].partitions[0].records
    other.connection.closed()
    other.connection.closed()
    found = pulled(world.node)
    assert only(found, "kafka_server_brokertopicmetrics_totalproducerequests_total") == 3
    assert only(found, "kafka_server_brokertopicmetrics_failedproducerequests_total") == 1
    assert only(found, "kafka_server_brokertopicmetrics_totalfetchrequests_total") == 1
    assert only(found, "skidway_dead_letters_written_total") == 0
    assert only(found, "kafka_server_brokertopicmetrics_failedfetchrequests_total") == 0
    log = world.node.partitions.find("t", 0).log
    for labels in ((), ("t",)):
        assert found["kafka_server_brokertopicmetrics_messagesin_total", labels] == 3
        assert found["kafka_server_brokertopicmetrics_bytesin_total", labels] == log.size()
        assert found["kafka_server_brokertopicmetrics_bytesout_total", labels] == len(read) == log.size()
        assert found["kafka_server_brokertopicmetrics_replicationbytesin_total", labels] == 0
    assert found["kafka_log_log_logendoffset", ("t", "0")] == 3
    assert found["kafka_log_log_size", ("t", "0")] == log.size()
    assert only(found, "kafka_server_socket_server_metrics_connection_count") == 1
    assert only(found, "kafka_server_socket_server_metrics_connection_creation_total") == 2
    assert only(found, "kafka_server_kafkaserver_brokerstate") == metrics.RUNNING
    assert only(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert only(found, "kafka_server_replicamanager_leadercount") == 1
    assert only(found, "skidway_syncs_total") >= 2
    assert only(found, "skidway_sync_failures_total") == 0
    assert found["skidway_events_total", ("TopicCreated",)] == 1
    assert only(found, "skidway_metrics_left_out") == 0


def test_requests_are_counted_with_their_bytes_by_api_and_version() -> None:
    world = World()
    peer = world.peer()
    frames = [peer.frame("Metadata", topics=None, version=version) for version in (1, 1, 12)]
    for frame in frames:
        peer.give(frame)
        world.end_turn()
    found = pulled(world.node)
    assert found["kafka_network_requestmetrics_requests_total", ("Metadata", "1")] == 2
    assert found["kafka_network_requestmetrics_requests_total", ("Metadata", "12")] == 1
    length_bytes = 4
    expected = sum(len(frame) - length_bytes for frame in frames[:2])
    assert found["kafka_network_requestmetrics_requestbytes_total", ("Metadata", "1")] == expected


def test_errors_are_counted_by_api_and_code_wherever_a_reply_has_them() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    for _ in range(2):
        assert code(produce(peer, "missing", b"a")) != 0
    assert code(produce(peer, "t", b"a")) == 0
    again = [part("CreateTopics", "CreatableTopic", "t", num_partitions=1, replication_factor=1)]
    peer.call("CreateTopics", topics=again, timeout_ms=1000)
    peer.call("Heartbeat", group_id="", generation_id=1, member_id="m")
    asked = [part("Metadata", "MetadataRequestTopic", name=name) for name in ("t", "x", "y")]
    peer.call("Metadata", topics=asked, allow_auto_topic_creation=False)
    name = "kafka_network_requestmetrics_errors_total"
    assert {values: number for (metric, values), number in pulled(world.node).items() if metric == name} == {
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("CreateTopics", "TOPIC_ALREADY_EXISTS"): 1,
        ("Heartbeat", "COORDINATOR_NOT_AVAILABLE"): 1,
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
    }


def test_how_long_requests_waited_for_their_reply_is_measured_by_api() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="sync")
    entry = part("Produce", "PartitionProduceData", 0, batch(b"a"))
    topics = [part("Produce", "TopicProduceData", "t", partition_data=[entry])]
    for wait_ms in (7, 30):
        peer.send("Produce", acks=-1, timeout_ms=5000, topic_data=topics)
        world.end_turn()
        world.clock.now_ms += wait_ms
        world.sync()
        assert code(peer.reply()) == 0
    assert code(produce(peer, "t", b"b")) == 0, "acks=1 is answered at once"
    found = pulled(world.node)
    waited = "skidway_requests_waited_total"
    (names,) = (values for name, values in found if name == waited and values[0] == "Produce")
    assert found[waited, names] == 2
    assert found["skidway_requests_waited_milliseconds_total", names] == 37
    assert found["skidway_requests_longest_wait_milliseconds", names] == 30
    times = found["skidway_requests_waited_seconds", ("Produce",)]
    assert {bound: count for bound, count in zip((*BOUNDS_MS, None), times.counts, strict=True) if count} == {
        10: 1,
        50: 1,
    }, "7 and 30 ms"
    assert times.total_us == 37_000


def test_who_waits_is_counted() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="sync")
    entry = part("Produce", "PartitionProduceData", 0, batch(b"a"))
    topics = [part("Produce", "TopicProduceData", "t", partition_data=[entry])]
    peer.send("Produce", acks=-1, timeout_ms=5000, topic_data=topics)
    parked = ("kafka_server_delayedoperationpurgatory_purgatorysize", ("Produce",))
    assert pulled(world.node)[parked] == 1
    world.end_turn()
    world.sync()
    assert pulled(world.node)[parked] == 0


def test_sums_do_not_go_back_when_a_topic_is_deleted() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    produce(peer, "t", b"a", b"b")
    before = pulled(world.node)
    peer.call("DeleteTopics", topic_names=["t"], timeout_ms=1000)
    found = pulled(world.node)
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    assert (name, ("t",)) not in found
    assert found[name, ()] == before[name, ()] > 0


def test_replication_and_in_sync_sets_are_counted() -> None:
    cluster = made()
    first = create(cluster, "t", replicas=3)
    produce_to(cluster, "t", b"a")
    found = {number: pulled(node) for number, node in cluster.nodes.items()}
    followers = [number for number in cluster.nodes if number != first]
    size = found[first]["kafka_server_brokertopicmetrics_bytesin_total", ("t",)]
    assert size > 0
    cluster.until(lambda: all(cluster.copy(number, "t").log.end_offset == 1 for number in followers))
    for number in followers:
        followed = pulled(cluster.nodes[number])
        assert followed["kafka_server_brokertopicmetrics_replicationbytesin_total", ("t",)] == size
        assert ("kafka_cluster_partition_replicascount", ("t", "0")) not in followed, "only the leader tells"
    led = pulled(cluster.nodes[first])
    assert led["kafka_server_brokertopicmetrics_replicationbytesout_total", ("t",)] >= 2 * size
    assert led["kafka_cluster_partition_insyncreplicascount", ("t", "0")] == 3
    gone = next(number for number in followers if number != cluster.controller())
    cluster.kill(gone)
    cluster.until(lambda: len(cluster.copy(first, "t").role.in_sync) == 2)
    name = "kafka_server_replicamanager_isrshrinks_total"
    cluster.until(lambda: pulled(cluster.nodes[first])[name, ()] == 1)
    led = pulled(cluster.nodes[first])
    assert led["kafka_cluster_partition_underreplicated", ("t", "0")] == 1
    assert led["kafka_server_replicamanager_underreplicatedpartitions", ()] == 1


def test_samples_have_a_bound_whatever_clients_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PARTITIONS_MAX", 10)
    world = World()
    peer = world.peer()
    for number in range(10):
        peer.create(f"t{number:03}", flush="os")
    produce(peer, "t009", b"a")
    ten = pulled(world.node)
    for number in range(10, 40):
        peer.create(f"t{number:03}", flush="os")
        produce(peer, f"t{number:03}", b"a")
        produce(peer, f"no such topic {number}", b"a")
        peer.call("FindCoordinator", version=4, key_type=0, coordinator_keys=[f"group {number}"])
    found = pulled(world.node)
    by_topic = {values for name, values in found if name.startswith(("kafka_log", "kafka_cluster")) and values}
    assert len({values[0] for values in by_topic}) == 10
    grown = {(name, values) for name, values in found if (name, values) not in ten}
    assert {name for name, _ in grown} <= {
        "kafka_network_requestmetrics_requests_total",
        "kafka_network_requestmetrics_requestbytes_total",
        "kafka_network_requestmetrics_errors_total",
        "skidway_requests_waited_total",
        "skidway_requests_waited_milliseconds_total",
        "skidway_requests_longest_wait_milliseconds",
        "skidway_requests_waited_seconds",
        "skidway_events_total",
    }, "by API and by kind of event only"
    assert found["kafka_server_replicamanager_partitioncount", ()] == len(world.node.partitions) > 40
    assert found["skidway_metrics_left_out", ()] == len(world.node.partitions) - 10
    assert found["kafka_server_brokertopicmetrics_messagesin_total", ()] >= 31, "sums go over all"


def test_a_walk_goes_in_steps() -> None:
    world = World()
    peer = world.peer()
    count = 3 * metrics.PARTITIONS_PER_STEP
    peer.create("many", partitions=count, flush="os")
    taken: list[Sample] = []
    per_step: list[int] = []
    for _ in samples(world.node, taken.append):
        per_step.append(len(taken))
    steps = [after - before for before, after in zip(per_step, [*per_step[1:], len(taken)], strict=True)]
    of_a_partition = 8
    assert len(per_step) >= 6
    assert max(steps) <= of_a_partition * metrics.PARTITIONS_PER_STEP + len(metrics.TRAFFIC) * 2 + 20


def test_measuring_calls_nothing_when_a_batch_is_produced() -> None:
    """Integers are bumped in place: no function of what measures runs."""
    peer = World().peer()
    peer.create("calls", flush="os")
    entry = part("Produce", "PartitionProduceData", 0, batch(b"x"))
    topics = [part("Produce", "TopicProduceData", "calls", partition_data=[entry])]
    frame = peer.frame("Produce", acks=1, timeout_ms=5000, topic_data=topics)
    files: list[str] = []

    def note(running: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            files.append(running.f_code.co_filename)

    sys.setprofile(note)
    try:
        peer.give(frame)
    finally:
        sys.setprofile(None)
    assert code(peer.reply()) == 0
    assert files
    assert not [file for file in files if file.endswith(("metrics.py", "counts.py", "traffic.py"))]
