"""Transactions with the clients that applications use, each as it comes."""

from collections.abc import Mapping

import pytest
from client_confluent import ConfluentClient
from clients import BEGINNING, CODECS, Client, Message
from group_calls import committed
from raw import Connection, MakeTopic
from transacting import Fenced, Options, Transacting
from transaction_calls import describe, differs, new_id

from waiting import eventually


@pytest.fixture
def options() -> Options:
    return Options(new_id())


def write(transacting: Transacting, bootstrap: str, topic: str, options: Options, *values: bytes, ends: bool) -> None:
    with transacting.producer(bootstrap, options) as producer:
        producer.begin()
        producer.send(topic, [Message(value, partition=0) for value in values])
        producer.commit() if ends else producer.abort()


def values(
    client: Client, topic: str, count: int, *, isolation: str = "read_committed", partition: int = 0
) -> list[bytes]:
    found = client.read(topic, {partition: BEGINNING}, count, isolation=isolation, max_wait_ms=100)
    return [one.value or b"" for one in found]


def fence(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """A plain message at the end of each partition: a reader that has it has read everything before."""
    end = [Message(b"end", partition=partition) for partition in range(partitions)]
    ConfluentClient(bootstrap).produce(topic, end)


def test_a_commit(client: Client, transacting: Transacting, bootstrap: str, topic: str, options: Options) -> None:
    write(transacting, bootstrap, topic, options, b"a", b"b", ends=True)
    assert values(client, topic, 2) == [b"a", b"b"]


def test_an_abort(client: Client, transacting: Transacting, bootstrap: str, topic: str, options: Options) -> None:
    write(transacting, bootstrap, topic, options, b"a", b"b", ends=False)
    fence(bootstrap, topic)
    assert values(client, topic, 1) == [b"end"]
    assert values(client, topic, 3, isolation="read_uncommitted") == [b"a", b"b", b"end"]


def test_readers_wait_for_what_is_open(
    client: Client, transacting: Transacting, bootstrap: str, topic: str, options: Options
) -> None:
    fence(bootstrap, topic)
    with transacting.producer(bootstrap, options) as producer:
        producer.begin()
        producer.send(topic, [Message(b"a", partition=0)])
        assert values(client, topic, 2, isolation="read_uncommitted") == [b"end", b"a"]
        assert values(client, topic, 1) == [b"end"]
        producer.commit()
    assert values(client, topic, 2) == [b"end", b"a"]


def test_several_partitions_and_topics(
    client: Client, transacting: Transacting, bootstrap: str, make_topic: MakeTopic, options: Options
) -> None:
    first, second = make_topic(partitions=3), make_topic(partitions=2)
    with transacting.producer(bootstrap, options) as producer:
        for number in range(3):
            producer.begin()
            producer.send(first, [Message(b"%d" % number, partition=partition) for partition in range(3)])
            producer.send(second, [Message(b"%d" % number, partition=partition) for partition in range(2)])
            producer.abort() if number == 1 else producer.commit()
    for topic, partitions in ((first, 3), (second, 2)):
        for partition in range(partitions):
            assert values(client, topic, 2, partition=partition) == [b"0", b"2"]


def test_many_small_transactions(
    client: Client, transacting: Transacting, bootstrap: str, topic: str, options: Options
) -> None:
    with transacting.producer(bootstrap, options) as producer:
        for number in range(30):
            producer.begin()
            producer.send(topic, [Message(b"%d" % number, partition=0)])
            producer.abort() if number % 5 == 4 else producer.commit()
    kept = [b"%d" % number for number in range(30) if number % 5 != 4]
    assert values(client, topic, len(kept)) == kept


def test_many_small_batches_in_one_transaction(
    client: Client, transacting: Transacting, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    with transacting.producer(bootstrap, Options(new_id(), linger_ms=0, batch_bytes=1_000)) as producer:
        producer.begin()
        sent = [Message(b"%04d" % number * 50, partition=number % 2) for number in range(400)]
        producer.send(topic, sent)
        producer.commit()
    for partition in range(2):
        expected = [one.value for one in sent if one.partition == partition]
        assert values(client, topic, 200, partition=partition) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches(client: Client, transacting: Transacting, bootstrap: str, topic: str, codec: str) -> None:
    sent = [b"%d" % number * 100 for number in range(20)]
    for ends in (False, True):
        write(transacting, bootstrap, topic, Options(new_id(), codec=codec), *sent, ends=ends)
    assert values(client, topic, 20) == sent


def test_empty_transactions(
    client: Client, transacting: Transacting, bootstrap: str, topic: str, options: Options
) -> None:
    with transacting.producer(bootstrap, options) as producer:
        for commits in (True, False, True):
            producer.begin()
            producer.commit() if commits else producer.abort()
        producer.begin()
        producer.send(topic, [Message(b"a", partition=0)])
        producer.commit()
        producer.begin()
        producer.abort()
    assert values(client, topic, 1) == [b"a"]


def test_a_newcomer_fences_a_zombie(
    client: Client, transacting: Transacting, bootstrap: str, topic: str, options: Options
) -> None:
    with transacting.producer(bootstrap, options) as zombie:
        zombie.begin()
        zombie.send(topic, [Message(b"zombie", partition=0)])
        with transacting.producer(bootstrap, options) as newcomer:
            newcomer.begin()
            newcomer.send(topic, [Message(b"newcomer", partition=0)])
            with pytest.raises(Fenced):
                zombie.commit()
            newcomer.commit()
    fence(bootstrap, topic)
    assert values(client, topic, 2) == [b"newcomer", b"end"]


def test_a_zombie_that_writes_is_fenced(
    client: Client, transacting: Transacting, bootstrap: str, topic: str, options: Options
) -> None:
    with transacting.producer(bootstrap, options) as zombie:
        zombie.begin()
        zombie.send(topic, [Message(b"zombie", partition=0)])
        with transacting.producer(bootstrap, options) as newcomer:
            newcomer.begin()
            newcomer.send(topic, [Message(b"newcomer", partition=0)])
            with pytest.raises(Fenced):
                zombie.send(topic, [Message(b"late", partition=0)])
            if differs(kafka=transacting.name == "kafka-python", skidway=False):
                # This zombie asks for its next epoch, and Kafka then aborts what the newcomer has open.
                return
            newcomer.commit()
    fence(bootstrap, topic)
    assert values(client, topic, 2) == [b"newcomer", b"end"]


def test_a_producer_that_is_started_again(
    client: Client, transacting: Transacting, bootstrap: str, topic: str, options: Options
) -> None:
    """What the one before had left open is aborted, and the new one writes from then on."""
    for number in range(3):
        with transacting.producer(bootstrap, options) as producer:
            producer.begin()
            producer.send(topic, [Message(b"kept-%d" % number, partition=0)])
            producer.commit()
            producer.begin()
            producer.send(topic, [Message(b"left-%d" % number, partition=0)])
    with transacting.producer(bootstrap, options):
        fence(bootstrap, topic)
    assert values(client, topic, 4) == [b"kept-0", b"kept-1", b"kept-2", b"end"]


def test_a_transaction_that_takes_too_long(
    wire: Connection, client: Client, transacting: Transacting, bootstrap: str, topic: str
) -> None:
    options = Options(new_id(), timeout_ms=1_000)
    with transacting.producer(bootstrap, options) as producer:
        producer.begin()
        producer.send(topic, [Message(b"late", partition=0)])
        eventually(lambda: describe(wire, options.transactional_id)["transaction_state"] == "CompleteAbort", seconds=60)
        with pytest.raises(Fenced):
            producer.commit()
    write(transacting, bootstrap, topic, options, b"again", ends=True)
    assert values(client, topic, 1) == [b"again"]


# ------------------------------------------------------------------------------------------- read, process and write


class Crash(Exception):
    """The process dies: nothing is said to anybody."""


def copy(
    transacting: Transacting, bootstrap: str, group: str, source: str, sink: str, *, rows: int, crash_after: int | None
) -> int:
    """Reads, writes in capitals and commits both together."""
    options = Options(f"copy-{group}")
    ended = 0
    with transacting.member(bootstrap, group, source) as member, transacting.producer(bootstrap, options) as producer:

        def step(read: list[tuple[int, int, bytes]]) -> None:
            producer.begin()
            producer.send(sink, [Message(value.upper(), partition=0) for _, _, value in read])
            if crash_after is not None and ended >= crash_after:
                raise Crash
            after = positions(read)
            producer.send_offsets(member, source, after)
            producer.commit()

        while ended < rows:
            found = member.poll()
            for begin in range(0, len(found), 5):
                step(found[begin : begin + 5])
                ended += len(found[begin : begin + 5])
    return ended


def positions(read: list[tuple[int, int, bytes]]) -> Mapping[int, int]:
    after: dict[int, int] = {}
    for partition, offset, _ in read:
        after[partition] = max(after.get(partition, 0), offset + 1)
    return after


def test_read_process_write(
    wire: Connection, transacting: Transacting, bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    """Two crashes in the middle, and every row is written once."""
    source, sink = make_topic(partitions=2), make_topic()
    rows = [b"row-%02d" % number for number in range(40)]
    ConfluentClient(bootstrap).produce(source, [Message(row, partition=n % 2) for n, row in enumerate(rows)])
    for _ in range(2):
        with pytest.raises(Crash):
            copy(transacting, bootstrap, group, source, sink, rows=40, crash_after=10)
    left = 40 - sum(max(0, offset) for offset in committed(wire, group, source, [0, 1]).values())
    assert left == 20
    copy(transacting, bootstrap, group, source, sink, rows=left, crash_after=None)
    assert committed(wire, group, source, [0, 1]) == {0: 20, 1: 20}
    fence(bootstrap, sink)
    *written, end = values(ConfluentClient(bootstrap), sink, 41)
    assert end == b"end"
    assert sorted(written) == [row.upper() for row in rows]
