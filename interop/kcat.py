"""kcat (librdkafka 2.0) against a broker: `python interop/kcat.py path/to/kcat host:port`.

Every check prints "ok <what>"; the first that fails ends the program with its reason.
"""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "conformance"))

from raw import Connection
from raw_batches import read
from wire_calls import fetch_bytes

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIMEOUT_S = 20


class Kcat:
    def __init__(self, program: str, bootstrap: str) -> None:
        self.program = program
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        command = [self.program, "-b", self.bootstrap, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def consume(self, topic: str, *arguments: str) -> list[str]:
        return self("-C", "-t", topic, "-p", "0", "-e", "-q", *arguments).splitlines()


def new_topic() -> str:
    return f"kcat-{uuid.uuid4()}"


def compresses(kcat: Kcat, codec: str) -> None:
    topic = new_topic()
    lines = [f"k{index}:{'compressible ' * 20}{index}" for index in range(200)]
    kcat("-P", "-t", topic, "-p", "0", "-z", codec, "-K", ":", stdin="\n".join(lines))
    found = kcat.consume(topic, "-o", "beginning", "-f", "%o %k:%s\\n")
    assert found == [f"{offset} {line}" for offset, line in enumerate(lines)], found[:3]
    with Connection(kcat.bootstrap) as wire:
        assert {batch.codec for batch in read(fetch_bytes(wire, topic))} == {CODECS[codec]}


def positions(kcat: Kcat) -> None:
    topic = new_topic()
    kcat("-P", "-t", topic, "-p", "0", stdin="\n".join(str(index) for index in range(50)))
    for start, first in (("beginning", 0), ("20", 20), ("-5", 45), ("end", 50)):
        assert kcat.consume(topic, "-o", start, "-f", "%s\\n") == [str(index) for index in range(first, 50)], start
    middle = int(time.time() * 1000) + 1
    while time.time() * 1000 < middle + 1:
        time.sleep(0.002)
    kcat("-P", "-t", topic, "-p", "0", stdin="later")
    assert kcat.consume(topic, "-o", f"s@{middle}", "-f", "%o %s\\n") == ["50 later"]
    assert kcat("-Q", "-t", f"{topic}:0:{middle}").strip() == f"{topic} [0] offset 50"


def shapes(kcat: Kcat) -> None:
    topic = new_topic()
    kcat("-P", "-t", topic, "-p", "0", "-Z", "-K", ":", "-H", "a=1", "-H", "a=2", stdin="key:\n")
    (line,) = kcat.consume(topic, "-o", "beginning", "-f", "%k|%S|%h\\n")
    assert line == "key|-1|a=1,a=2", line


def acks(kcat: Kcat) -> None:
    for level in ("0", "1", "all"):
        topic = new_topic()
        kcat("-P", "-t", topic, "-p", "0", "-X", f"acks={level}", stdin="one\ntwo")
        deadline = time.monotonic() + 8
        while (found := kcat.consume(topic, "-o", "beginning", "-f", "%s\\n")) != ["one", "two"]:
            assert time.monotonic() < deadline, (level, found)


def idempotent(kcat: Kcat) -> None:
    topic = new_topic()
    lines = [str(index) for index in range(1000)]
    kcat("-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", stdin="\n".join(lines))
    assert kcat.consume(topic, "-o", "beginning", "-f", "%s\\n") == lines


def metadata(kcat: Kcat) -> None:
    topic = new_topic()
    kcat("-P", "-t", topic, "-p", "0", stdin="v")
    listed = json.loads(kcat("-L", "-J", "-t", topic))
    (broker,) = listed["brokers"]
    assert broker["name"].endswith(kcat.bootstrap.rpartition(":")[2])
    assert listed["controllerid"] == broker["id"]
    (found,) = listed["topics"]
    assert (found["topic"], len(found["partitions"])) == (topic, 1)
    assert found["partitions"][0]["leader"] == broker["id"]
    assert topic in [one["topic"] for one in json.loads(kcat("-L", "-J"))["topics"]]


def main(program: str, bootstrap: str) -> int:
    kcat = Kcat(program, bootstrap)
    checks: dict[str, Callable[[], None]] = {
        **{f"produce and consume, {codec}": lambda codec=codec: compresses(kcat, codec) for codec in CODECS},
        "positions by offset and time": lambda: positions(kcat),
        "headers and null values": lambda: shapes(kcat),
        "acks": lambda: acks(kcat),
        "idempotent producer": lambda: idempotent(kcat),
        "metadata": lambda: metadata(kcat),
    }
    for what, check in checks.items():
        try:
            check()
        except (AssertionError, subprocess.TimeoutExpired, OSError) as problem:
            print(f"FAIL {what}\n{problem}")
            return 1
        print(f"ok {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
