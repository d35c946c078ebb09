"""`inspect log` on files that are sound and on files damaged in every way that comes to mind."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from typer.testing import CliRunner

from skidway.cli.commands.inspect import app
from skidway.records.batch import stamp
from skidway.records.compression import Codec
from skidway.records.control import EndTransaction, end_transaction_batch
from skidway.records.record import Record, build_batch

BATCHES = 12
RECORDS_PER_BATCH = 10
DAMAGED = 3


class Segment:
    """A segment written by hand, independently of the broker's own log."""

    def __init__(self, directory: Path, base_offset: int = 0, batches: int = BATCHES) -> None:
        directory.mkdir(exist_ok=True)
        self.log = directory / f"{base_offset:020}.log"
        self.index = self.log.with_suffix(".index")
        self.timeindex = self.log.with_suffix(".timeindex")
        self.positions: list[int] = []
        data, index, timeindex = bytearray(), bytearray(), bytearray()
        for number in range(batches):
            offset = base_offset + number * RECORDS_PER_BATCH
            records = [
                Record(0, 1_000 + offset + n, b"k", b"value %d" % (offset + n)) for n in range(RECORDS_PER_BATCH)
            ]
            batch = build_batch(records, codec=list(Codec)[number % 5])
            stamp(batch, offset, leader_epoch=3)
            last = offset + RECORDS_PER_BATCH - 1
            if number and number % 3 == 0:
                index += struct.pack(">ii", last - base_offset, len(data))
                timeindex += struct.pack(">qi", 1_000 + last, last - base_offset)
            self.positions.append(len(data))
            data += batch
        self.end_offset = base_offset + batches * RECORDS_PER_BATCH
        self.log.write_bytes(data)
        self.index.write_bytes(index)
        self.timeindex.write_bytes(timeindex)

    def flip(self, position: int, path: Path | None = None) -> None:
        target = path or self.log
        data = bytearray(target.read_bytes())
        data[position] ^= 0x40
        target.write_bytes(data)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


@pytest.fixture
def segment(directory: Path) -> Segment:
    return Segment(directory)


def inspect(path: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    result = CliRunner().invoke(app, ["log", str(path), "--json", *options])
    return result.exit_code, json.loads(result.stdout)


def damages(path: Path, *options: str) -> list[tuple[str, str]]:
    code, (report,) = inspect(path, *options)
    found = [(Path(finding["file"]).suffix, finding["text"]) for finding in report["findings"] if finding["damage"]]
    assert code == (DAMAGED if found else 0)
    assert report["damaged"] == bool(found)
    return found


def test_a_sound_partition(directory: Path, segment: Segment) -> None:
    code, (report,) = inspect(directory, "--deep")
    assert code == 0
    assert report["findings"] == []
    (found,) = report["segments"]
    assert found["batches"] == BATCHES
    assert found["records"] == BATCHES * RECORDS_PER_BATCH
    assert (found["first_offset"], found["last_offset"]) == (0, 119)
    assert found["index_entries"] == found["time_index_entries"] == 3
    assert sum(found["codecs"].values()) == BATCHES


def test_the_table_for_people(directory: Path, segment: Segment) -> None:
    result = CliRunner().invoke(app, ["log", str(directory)])
    assert result.exit_code == 0
    assert result.stdout.split()[-1] == "sound"
    assert "0-119" in result.stdout


def test_every_byte_of_a_batch_that_the_checksum_covers_is_noticed(directory: Path, segment: Segment) -> None:
    start, end = segment.positions[4], segment.positions[5]
    for position in (start + 21, start + 23, start + 45, start + 61, end - 1):
        segment.flip(position)
        assert [suffix for suffix, _ in damages(directory)] == [".log"]
        assert "bad checksum at offset 40" in damages(directory)[0][1]
        segment.flip(position)
    assert damages(directory) == []


def test_a_damaged_batch_does_not_hide_the_next_damage(directory: Path, segment: Segment) -> None:
    segment.flip(segment.positions[2] + 70)
    segment.flip(segment.positions[9] + 70)
    assert [text.split(":")[0] for _, text in damages(directory)] == [
        "bad checksum at offset 20",
        "bad checksum at offset 90",
    ]


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_a_torn_tail(directory: Path, segment: Segment, cut: int) -> None:
    last = segment.positions[-1]
    data = segment.log.read_bytes()
    segment.log.write_bytes(data[: last + (len(data) - last) - cut] if cut < 61 else data[: last + cut - 60])
    assert any("torn" in text for suffix, text in damages(directory) if suffix == ".log")


def test_garbage_behind_the_last_batch(directory: Path, segment: Segment) -> None:
    segment.log.write_bytes(segment.log.read_bytes() + b"\xee" * 100)
    assert any("no batch here" in text for _, text in damages(directory))


def test_a_batch_with_the_wrong_offset(directory: Path, segment: Segment) -> None:
    data = bytearray(segment.log.read_bytes())
    struct.pack_into(">q", data, segment.positions[5], 7)
    segment.log.write_bytes(data)
    assert (".log", "offset 7 where at least 50 was expected") in damages(directory)


def test_an_index_entry_that_points_into_the_middle_of_a_batch(directory: Path, segment: Segment) -> None:
    segment.index.write_bytes(struct.pack(">ii", 39, segment.positions[3] + 5))
    assert [suffix for suffix, _ in damages(directory)] == [".index"]
    assert "where no batch starts" in damages(directory)[0][1]


def test_an_index_entry_with_another_batchs_offset(directory: Path, segment: Segment) -> None:
    segment.index.write_bytes(struct.pack(">ii", 49, segment.positions[3]))
    assert "says offset 49 is at" in damages(directory)[0][1]


def test_index_entries_out_of_order_or_behind_the_end(directory: Path, segment: Segment) -> None:
    entries = struct.pack(">iiii", 69, segment.positions[6], 39, segment.positions[3])
    segment.index.write_bytes(entries)
    assert any("does not come after" in text for _, text in damages(directory))
    segment.index.write_bytes(struct.pack(">ii", 500, 1_000_000))
    assert any("after the last whole batch" in text for _, text in damages(directory))


def test_a_time_index_that_would_skip_records(directory: Path, segment: Segment) -> None:
    segment.timeindex.write_bytes(struct.pack(">qi", 1_000 + 10, 39))
    ((suffix, text),) = damages(directory)
    assert suffix == ".timeindex"
    assert "says 1010 is the latest up to offset 39, it is 1039" in text


def test_a_transaction_index_is_held_against_the_markers(directory: Path, segment: Segment) -> None:
    data, offset = bytearray(segment.log.read_bytes()), segment.end_offset
    for producer_id, committed in ((7, False), (8, True)):
        marker = end_transaction_batch(
            EndTransaction(committed, 0), producer_id=producer_id, producer_epoch=0, timestamp=2_000
        )
        stamp(marker, offset, leader_epoch=3)
        data += marker
        offset += 1
    segment.log.write_bytes(data)
    first, index = segment.end_offset, segment.log.with_suffix(".txnindex")
    for entries, found in (
        ([(7, first - 5, first)], []),
        ([(9, first - 5, first)], ["entry 0: says that 120 aborts a transaction of producer 9"]),
        ([(7, first - 5, first), (8, 3, first + 1)], ["entry 1: says that 121 aborts a transaction of producer 8"]),
        ([(7, first - 5, first - 2)], ["entry 0: names a marker at offset 118, where none is"]),
        ([(7, first - 5, first + 9)], []),
    ):
        index.write_bytes(b"".join(struct.pack(">hqqqq", 0, *entry, 0) for entry in entries))
        assert damages(directory) == [(".txnindex", text) for text in found]
    index.write_bytes(bytes(33))
    assert damages(directory) == [(".txnindex", "33 bytes are no whole entries")]


def test_an_index_of_odd_length(directory: Path, segment: Segment) -> None:
    segment.index.write_bytes(segment.index.read_bytes() + b"\x01\x02\x03")
    assert any("not a whole number" in text for _, text in damages(directory))


def test_room_laid_out_in_advance_is_no_damage(directory: Path, segment: Segment) -> None:
    for path in (segment.index, segment.timeindex):
        path.write_bytes(path.read_bytes() + bytes(24 * 100))
    assert damages(directory) == []


def test_missing_indexes_are_one_note(directory: Path, segment: Segment) -> None:
    segment.index.unlink()
    segment.timeindex.unlink()
    code, (report,) = inspect(directory)
    assert code == 0
    assert [(finding["damage"], finding["text"][:13]) for finding in report["findings"]] == [(False, "2 index files")]


def test_notes_are_counted_and_shown_on_request(directory: Path, segment: Segment) -> None:
    """A running broker has no indexes on disk for what it wrote since the last checkpoint."""
    segment.index.unlink()
    plain = CliRunner().invoke(app, ["log", str(directory)])
    assert "note:" not in plain.output
    assert "1 note on what a broker repairs by itself; --verbose shows it" in plain.stderr
    verbose = CliRunner().invoke(app, ["log", str(directory), "--verbose"])
    assert verbose.output.count("note:") == 1
    segment.flip(segment.positions[1] + 70)
    assert "damage:" in CliRunner().invoke(app, ["log", str(directory)]).output


def test_deleted_topics_are_passed_over_unless_named(tmp_path: Path, segment: Segment) -> None:
    gone = tmp_path / "old-0.0123456789abcdef0123456789abcdef-delete"
    Segment(gone)
    assert len(inspect(tmp_path)[1]) == 1
    assert inspect(gone)[1][0]["segments"][0]["batches"] == BATCHES


def test_segments_that_overlap_and_segments_with_a_hole(directory: Path, segment: Segment) -> None:
    Segment(directory, segment.end_offset)
    assert damages(directory) == []
    Segment(directory, segment.end_offset * 3)
    assert damages(directory) == [], "a hole may come from compaction"
    Segment(directory, segment.end_offset - 10)
    assert any("the segment before it reaches to" in text for _, text in damages(directory))


def test_records_that_do_not_parse_are_found_only_by_the_deep_look(directory: Path, segment: Segment) -> None:
    batch = bytearray(build_batch([Record(0, 5_000, b"k", b"v")]))
    batch[61] = 0x7E  # the record's length
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    stamp(batch, segment.end_offset, leader_epoch=3)
    segment.log.write_bytes(segment.log.read_bytes() + batch)
    assert damages(directory) == []
    assert any("cannot read the records" in text for _, text in damages(directory, "--deep"))


def snapshot(count: int, extra: bytes = b"") -> bytes:
    entries = b"".join(struct.pack(">qhiqiqiq", 100 + n, 0, 9, 50 + n, 4, 1_000, -1, -1) for n in range(count))
    body = struct.pack(">i", count) + entries + extra
    return struct.pack(">hI", 1, crc32c(body)) + body


def test_producer_snapshots(directory: Path, segment: Segment) -> None:
    path = directory / f"{segment.end_offset:020}.snapshot"
    path.write_bytes(snapshot(3, extra=b"what another broker added"))
    code, (report,) = inspect(directory)
    assert (code, report["producers"]) == (0, 3)
    listed = inspect(directory, "--producers")[1][0]["producers"]
    assert [(one["producer_id"], one["last_sequence"], one["last_offset"]) for one in listed[:1]] == [(100, 9, 50)]
    assert " 102 " in CliRunner().invoke(app, ["log", str(directory), "--producers"]).stdout
    segment.flip(20, path)
    assert damages(directory) == [(".snapshot", "bad checksum")]
    path.write_bytes(b"\0\1")
    assert "too few" in damages(directory)[0][1]
    body = struct.pack(">i", 1_000_000)
    path.write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)
    assert "do not fit" in damages(directory)[0][1]


def test_a_single_file_and_a_whole_data_directory(tmp_path: Path, directory: Path, segment: Segment) -> None:
    Segment(tmp_path / "orders-1")
    (tmp_path / "meta.properties").write_text("x")
    code, reports = inspect(tmp_path)
    assert code == 0
    assert [Path(report["directory"]).name for report in reports] == ["orders-0", "orders-1"]
    assert inspect(segment.log)[1][0]["segments"][0]["records"] == 120
    assert inspect(segment.index)[1][0]["segments"][0]["records"] == 120, "any file of a segment names it"


def test_the_dump_of_batches_and_records(directory: Path, segment: Segment) -> None:
    lines = CliRunner().invoke(app, ["log", str(directory), "--batches"]).stdout.splitlines()
    assert len(lines) == BATCHES
    assert lines[1].startswith(f"position {segment.positions[1]}  offsets 10-19  records 10 ")
    assert "codec gzip" in lines[1]
    records = CliRunner().invoke(app, ["log", str(directory), "--records"]).stdout.splitlines()
    assert [json.loads(line)["value"] for line in records] == [f"value {offset}" for offset in range(120)]


@pytest.mark.parametrize("what", ["missing", "empty directory", "other file"])
def test_paths_that_are_nothing_to_inspect(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x"
    if what == "empty directory":
        path.mkdir()
    elif what == "other file":
        path.write_text("hello")
    result = CliRunner().invoke(app, ["log", str(path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
