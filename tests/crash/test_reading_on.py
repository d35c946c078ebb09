"""A reader that follows the log goes on where one segment ends and the next begins."""

from random import Random

from simulated_node import ManualClock, SimulatedNode, WatchedDisk, batch_of, create_topic, fetch, produce, records_in


def test_a_reader_at_the_end_sees_what_follows_a_roll() -> None:
    shell = SimulatedNode(WatchedDisk(), Random(1), ManualClock())
    topic_id = bytes(shell.call(create_topic("followed", internal_segment_bytes=1_000)).topics[0].topic_id)
    for offset in range(20):
        shell.call(produce(topic_id, 0, batch_of([b"%d" % offset + bytes(200)], 1)))
        (answer,) = shell.call(fetch(topic_id, 0, offset)).responses[0].partitions
        ((header, _),) = records_in(answer.records)
        assert header.base_offset == offset
    assert len(shell.node.partitions.find("followed", 0).log.segments) > 3
