"""Kafka's own tools for share groups: `python interop/tools/shares.py folder-of-jars host:port`.

kafka-share-groups and kafka-console-share-consumer, started from the jars as their scripts do.
Every check prints "ok <what>"; the first that fails ends the program with its reason.
"""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

TIMEOUT_S = 60
JVM = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


class Tools:
    """Starts a tool, and returns what it printed; remarks are on another stream."""

    def __init__(self, jars: Path, bootstrap: str) -> None:
        self.jars = jars
        self.bootstrap = bootstrap

    def run(self, tool: str, *arguments: str) -> str:
        command = ["java", *JVM, "-cp", f"{self.jars}/*", tool, "--bootstrap-server", self.bootstrap, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S * 2)
        assert done.returncode == 0, f"{' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def table(self, *arguments: str) -> list[dict[str, str]]:
        """The rows of a table, by the names of its columns."""
        lines = [line.split() for line in self.run(GROUPS, *arguments).splitlines() if line.strip()]
        heads = [index for index, line in enumerate(lines) if line[0] == "GROUP"]
        assert heads, f"no table in {lines}"
        names = lines[heads[0]]
        return [dict(zip(names, line, strict=False)) for line in lines[heads[0] + 1 :]]


def set_up(bootstrap: str, topic: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT_S)
    change = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, f"value-{number}", partition=0)
    assert producer.flush(TIMEOUT_S) == 0, "a record was not acknowledged"


def consume(tools: Tools, topic: str, group: str) -> None:
    """Ten records to the screen, accepted as they are printed."""
    asked = ["--topic", topic, "--group", group, "--max-messages", "10", "--timeout-ms", "50000"]
    printed = tools.run(CONSOLE, *asked)
    values = [line for line in printed.splitlines() if line.startswith("value-")]
    assert values == [f"value-{number}" for number in range(10)], printed


def listed(tools: Tools, group: str) -> None:
    assert group in tools.run(GROUPS, "--list").split()
    rows = {row["GROUP"]: row for row in tools.table("--list", "--state", "Empty")}
    assert rows[group]["STATE"] == "Empty", rows[group]


def described(tools: Tools, topic: str, group: str) -> None:
    """No records are left, and nobody is in it."""
    (state,) = tools.table("--describe", "--group", group, "--state")
    assert (state["STATE"], state["#MEMBERS"]) == ("Empty", "0"), state

    def drained() -> bool:
        rows = tools.table("--describe", "--group", group, "--offsets")
        return any(row["TOPIC"] == topic and row["LAG"] == "0" for row in rows)

    eventually(drained)


def reset(tools: Tools, topic: str, group: str) -> None:
    """Tried, then done: three records are to be read again."""
    target = ["--reset-offsets", "--group", group, "--topic", topic, "--to-earliest"]
    (planned,) = tools.table(*target, "--dry-run")
    assert (planned["TOPIC"], planned["NEW-OFFSET"]) == (topic, "0"), planned
    (done,) = tools.table(*target, "--execute")
    assert done["NEW-OFFSET"] == "0", done
    (row,) = tools.table("--describe", "--group", group, "--offsets")
    assert (row["START-OFFSET"], row["LAG"]) == ("0", "10"), row


def forgotten(tools: Tools, topic: str, group: str) -> None:
    tools.run(GROUPS, "--delete-offsets", "--group", group, "--topic", topic)
    printed = tools.run(GROUPS, "--describe", "--group", group, "--offsets")
    assert topic not in printed, printed


def deleted(tools: Tools, group: str) -> None:
    tools.run(GROUPS, "--delete", "--group", group)
    assert group not in tools.run(GROUPS, "--list").split()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "in vain"


def main(jars: Path, bootstrap: str) -> int:
    tools, topic, group = Tools(jars, bootstrap), f"tools-{uuid.uuid4()}", f"share-tools-{uuid.uuid4()}"
    set_up(bootstrap, topic, group)
    checks: dict[str, Callable[[], None]] = {
        "the console share consumer prints ten records": partial(consume, tools, topic, group),
        "kafka-share-groups lists": partial(listed, tools, group),
        "kafka-share-groups describes state and offsets": partial(described, tools, topic, group),
        "kafka-share-groups resets offsets": partial(reset, tools, topic, group),
        "kafka-share-groups deletes offsets": partial(forgotten, tools, topic, group),
        "kafka-share-groups deletes the group": partial(deleted, tools, group),
    }
    for what, check in checks.items():
        try:
            check()
        except Exception as problem:
            print(f"FAIL {what}: {problem}")
            return 1
        print(f"ok {what}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
