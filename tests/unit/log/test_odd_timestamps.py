"""Timestamps at and beyond the ends of 64 bits, from the producer to the reader: through the checks of a leader, the
log, lookups by time, retention and compaction. Nothing fails, and nobody's time changes on the way."""

from compaction_by_hand import DAY, NOW, SETTINGS, close_segment, finish, open_log, read, settle
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from skidway.errors import InvalidTimestamp
from skidway.limits import INT64_MAX
from skidway.log import lookup, retention
from skidway.log.compaction import cleaning
from skidway.log.log import Log
from skidway.records.batch import HEADER, BatchHeader, read_header, set_crc, wrap_timestamp
from skidway.records.record import Record, build_batch, read_records
from skidway.records.validation import TopicRules, validate
from skidway.sim.world.disk import SimDisk
from skidway.steps import at_once

INT64_MIN = -INT64_MAX - 1
PRODUCE_VERSION = 12
EDGES = [INT64_MIN, INT64_MIN + 1, INT64_MIN + NOW, -2, -1, 0, NOW, INT64_MAX - NOW, INT64_MAX - 1, INT64_MAX]
timestamps = st.one_of(st.sampled_from(EDGES), st.integers(INT64_MIN, INT64_MAX))
keyed = st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["v", None]), timestamps)
Written = tuple[str, str | None, int]


def batch_of(records: list[Written], base: int, largest: int | None) -> bytearray:
    """With any base, as a foreign producer may choose it, and perhaps a header that lies about the largest."""
    made = [
        Record(0, timestamp, key.encode(), None if value is None else value.encode())
        for key, value, timestamp in records
    ]
    first = made[0]._replace(timestamp=base)
    batch = build_batch([first, *made])
    header = read_header(batch)
    HEADER.pack_into(
        batch, 0, *header._replace(max_timestamp=max(r.timestamp for r in made) if largest is None else largest)
    )
    set_crc(batch)
    return batch


def produce(log: Log, batch: bytearray, rules: TopicRules) -> bool:
    """Whether a leader takes it."""
    try:
        taken, header = validate(memoryview(batch), rules, PRODUCE_VERSION, NOW)
    except InvalidTimestamp:
        return False
    assert isinstance(taken, bytearray | memoryview)
    assert isinstance(header, BatchHeader)
    log.append(taken, header, 0, NOW)
    return True


def newest(records: list[Record]) -> dict[bytes | None, Record]:
    return {record.key: record for record in records}


@given(
    st.lists(st.tuples(st.lists(keyed, min_size=1, max_size=4), timestamps, st.none() | timestamps), max_size=4),
    st.sampled_from([0, 7 * DAY, INT64_MAX]),
)
@example([([("a", None, INT64_MIN + NOW)], INT64_MIN + NOW, None)], DAY)
@example([([("a", "v", INT64_MAX), ("b", "v", INT64_MIN)], INT64_MAX, 0)], DAY)
def test_odd_timestamps_from_produce_to_fetch(
    batches: list[tuple[list[Written], int, int | None]], delete_retention_ms: int
) -> None:
    # Not compacted yet when they come: the leader believes the header.
    rules = TopicRules(timestamp_after_max_ms=INT64_MAX)
    log = open_log(SimDisk(), replace(SETTINGS, delete_retention_ms=delete_retention_ms))
    for records, base, largest in batches:
        produce(log, batch_of(records, base, largest), rules)
    log.append(last := build_batch([Record(0, NOW, b"last", b"v")]), read_header(last), 0, NOW)
    settle(log)
    before = read(log)
    for timestamp in (0, NOW, INT64_MAX):
        found = at_once(lookup.offset_for_timestamp(log, timestamp))
        assert found is None or INT64_MIN <= found[1] <= INT64_MAX
    close_segment(log)
    for now_ms, token in ((NOW, "t1"), (NOW + 1, "t2"), (NOW + 30 * DAY, "t3")):
        running = cleaning.begin(log, now_ms, token)
        assert running is not None
        finish(log, running)
        after = newest(read(log))
        for key, record in newest(before).items():
            if record.value is not None:
                assert after[key] == record, "the newest record of a key stays as it was"
            elif key in after:
                assert after[key].timestamp == record.timestamp, "a tombstone keeps its time"
        at_once(lookup.offset_of_max_timestamp(log))
        retention.apply(log, now_ms)
        log.append(more := build_batch([Record(0, NOW, b"more", b"v")]), read_header(more), 0, NOW)
        close_segment(log)


@given(timestamps)
def test_what_is_too_far_from_now_for_64_bits_is_refused(timestamp: int) -> None:
    batch = build_batch([Record(0, timestamp, b"k", b"v")])
    rules = TopicRules(timestamp_after_max_ms=INT64_MAX)
    taken = produce(open_log(SimDisk()), batch, rules)
    assert taken == (NOW - timestamp <= INT64_MAX)
    assert wrap_timestamp(timestamp) == timestamp
    assert next(read_records(batch, decompressed_bytes_max=100)).timestamp == timestamp
