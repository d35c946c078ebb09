"""Kafka's DumpLogSegments reads files of transactions: `python interop/tools/dump.py folder-of-jars host:port`.

It reads what a broker of its own has left behind, so the one at host:port is not asked.
Every check prints "ok <what>"; the first that fails ends the program with its reason.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from skidway.testing import Broker

TOPIC = "dumped"
GROUP = "dumped-group"
TIMEOUT_S = 60
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def producer(bootstrap: str, name: str) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    made.init_transactions(TIMEOUT_S)
    made.begin_transaction()
    return made


def write(to: Producer, value: str) -> None:
    to.produce(TOPIC, value, partition=0)
    assert to.flush(TIMEOUT_S) == 0, "a record was not acknowledged"


def transactions(bootstrap: str) -> None:
    """Two that overlap, of which the first is aborted, and one that stays open; the second moves a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(TIMEOUT_S)
    aborted, committed, left = (producer(bootstrap, name) for name in ("aborted", "committed", "open"))
    write(aborted, "offset 0")
    write(committed, "offset 1")
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    committed.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 7)], group.consumer_group_metadata(), TIMEOUT_S)
    group.close()
    aborted.abort_transaction(TIMEOUT_S)
    await_end(bootstrap, 3)
    committed.commit_transaction(TIMEOUT_S)
    await_end(bootstrap, 4)
    write(left, "offset 4")


def await_end(bootstrap: str, end: int) -> None:
    """Markers may still be on their way when a producer is answered."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": "read_uncommitted"})
    deadline = time.monotonic() + TIMEOUT_S
    while reader.get_watermark_offsets(TopicPartition(TOPIC, 0), TIMEOUT_S)[1] < end:
        assert time.monotonic() < deadline, f"the log never came to offset {end}"
        time.sleep(0.02)
    reader.close()


class Dump:
    def __init__(self, jars: str, data: Path) -> None:
        self.jars = jars
        self.data = data

    def __call__(self, pattern: str, *options: str) -> list[str]:
        files = ",".join(str(path) for path in sorted(self.data.glob(pattern)) if path.stat().st_size)
        assert files, f"no file is named {pattern}"
        command = [
            "java",
            "-cp",
            f"{self.jars}/*",
            "org.apache.kafka.tools.DumpLogSegments",
            "--files",
            files,
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{' '.join(command[3:])} ended with {done.returncode}: {done.stderr}"
        return done.stdout.splitlines()


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))


def same(found: object, expected: object) -> None:
    assert found == expected, f"found {found}, expected {expected}"


def check_log(lines: list[str]) -> list[str]:
    """Producer ids of the three transactions, in the order in which they began."""
    batches = [fields(line) for line in lines if line.startswith("baseOffset")]
    same({one["isvalid"] + one["isTransactional"] for one in batches}, {"truetrue"})
    same([one["isControl"] for one in batches], ["false", "false", "true", "true", "false"])
    first, second, aborted, committed, left = (one["producerId"] for one in batches)
    same((aborted, committed), (first, second))
    markers = [fields(line) for line in lines if "endTxnMarker" in line]
    same(
        [(one["offset"], one["endTxnMarker"], one["coordinatorEpoch"]) for one in markers],
        [("2", "ABORT", "0"), ("3", "COMMIT", "0")],
    )
    return [first, second, left]


def check_index(lines: list[str], ids: list[str]) -> None:
    expected = {"version": "0", "producerId": ids[0], "firstOffset": "0", "lastOffset": "2", "lastStableOffset": "1"}
    same([fields(line) for line in lines if line.startswith("version")], [expected])


def check_snapshot(lines: list[str], ids: list[str]) -> None:
    found = {one["producerId"]: one for one in map(fields, lines) if "producerId" in one}
    begun = {producer_id: one["currentTxnFirstOffset"] for producer_id, one in found.items()}
    same(begun, dict(zip(ids, ("OptionalLong.empty", "OptionalLong.empty", "OptionalLong[4]"), strict=True)))
    same([found[one]["coordinatorEpoch"] for one in ids], ["0", "0", "-1"])
    same([found[one]["lastOffset"] for one in ids], ["0", "1", "4"])


def decoded(lines: list[str]) -> list[tuple[dict[str, object], dict[str, object]]]:
    pairs = [re.search(r" key: (\{.*\}) payload: (\{.*\})$", line) for line in lines]
    return [(json.loads(pair[1])["data"], json.loads(pair[2])["data"]) for pair in pairs if pair]


def check_states(lines: list[str], ids: list[str]) -> None:
    states: dict[object, list[object]] = {}
    for key, value in decoded(lines):
        states.setdefault(key["transactionalId"], []).append(value["transactionStatus"])
        same(str(value["producerId"]), ids[["aborted", "committed", "open"].index(str(key["transactionalId"]))])
    same(states["aborted"], [EMPTY, ONGOING, PREPARE_ABORT, COMPLETE_ABORT])
    # The partition of the group's offsets is added after the topic's.
    same(states["committed"], [EMPTY, ONGOING, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT])
    same(states["open"], [EMPTY, ONGOING])


def check_offsets(lines: list[str], ids: list[str]) -> None:
    batches = [fields(line) for line in lines if line.startswith("baseOffset") and "isTransactional: true" in line]
    same([(one["producerId"], one["isControl"]) for one in batches], [(ids[1], "false"), (ids[1], "true")])
    moved = [
        (key["topic"], key["partition"], value["offset"]) for key, value in decoded(lines) if key.get("group") == GROUP
    ]
    same(moved, [(TOPIC, 0, 7)])
    same([fields(line)["endTxnMarker"] for line in lines if "endTxnMarker" in line], ["COMMIT"])


def main(jars: str) -> int:
    with tempfile.TemporaryDirectory(prefix="skidway-dump-") as folder:
        data = Path(folder, "data")
        with Broker(data_dir=data) as broker:
            transactions(broker.bootstrap)
            same(broker.stop(), 0)
        dump = Dump(jars, data)
        ids = check_log(dump(f"{TOPIC}-0/*.log", "--print-data-log"))
        print("ok DumpLogSegments reads transactional batches and markers")
        check_index(dump(f"{TOPIC}-0/*.txnindex"), ids)
        print("ok DumpLogSegments reads a transaction index")
        check_snapshot(dump(f"{TOPIC}-0/*5.snapshot"), ids)
        print("ok DumpLogSegments reads a producer snapshot with an open transaction")
        check_states(dump("__transaction_state-*/*.log", "--transaction-log-decoder"), ids)
        print("ok DumpLogSegments reads the states of transactions")
        check_offsets(dump("__consumer_offsets-*/*.log", "--offsets-decoder"), ids)
        print("ok DumpLogSegments reads offsets of a transaction")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except AssertionError as problem:
        print(f"FAIL {problem}")
        sys.exit(1)
