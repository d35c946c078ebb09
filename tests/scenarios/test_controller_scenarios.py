"""Transcripts of a controller: each command, then the replies (`name: result`) and the records written (`+ ...`)."""

from pathlib import Path
from typing import Any

import pytest
from transcripts import replay, scenarios

from skidway.errors import ProtocolError
from skidway.limits import Limits
from skidway.metadata.controller import Controller, ControllerSettings
from skidway.metadata.image import Endpoint
from skidway.metadata.operations import (
    AllocateProducerIds,
    AlterConfigs,
    AlterOp,
    Bootstrap,
    ConfigChange,
    ConfigReplacement,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    MorePartitions,
    NewTopic,
    RegisterBroker,
)
from skidway.metadata.records import from_batches, to_batch
from skidway.runtime.replicated import Now, Operation
from skidway.wire.message import ZERO_UUID, Message

RESOURCES = {"topic": 2, "broker": 4, "logger": 8, "metrics": 16, "group": 32, "unknown": 99}
CHANGES = {"+": AlterOp.APPEND, "-": AlterOp.SUBTRACT, "!": AlterOp.DELETE}


class Counting:
    """Randomness a reader can follow: ids are numbered, and the first choice is always taken."""

    def __init__(self) -> None:
        self.given = 0

    def randbytes(self, size: int) -> bytes:
        self.given += 1
        return b"topic" + self.given.to_bytes(size - 5, "big")

    def randrange(self, stop: int) -> int:
        return 0


class Transcript:
    def __init__(self) -> None:
        self.random = Counting()
        self.log = bytearray()
        self.controller = self.new_controller()

    def new_controller(self) -> Controller:
        limits = Limits(partitions_per_topic_max=10, partitions_max=20, topics_per_request_max=5)
        return Controller(self.random, limits, ControllerSettings(1, partitions=2))

    def run(self, line: str) -> str:
        command, *words = line.split()
        if command == "restart":
            before, self.controller = self.controller.image, self.new_controller()
            for record in from_batches(self.log):
                self.controller.apply(record)
            assert self.controller.image == before
            return "same image"
        if command == "configs":
            settings = sorted(self.controller.image.configs.items())
            return "\n".join(f"{kind}:{name} {values}" for (kind, name), values in settings) or "nothing"
        if command == "leaders":
            partitions = self.controller.image.topics[words[0]].partitions
            return "\n".join(f"{each.index}: {each.leader} in epoch {each.leader_epoch}" for each in partitions)
        validate_only = "validate" in words
        words = [word for word in words if word != "validate"]
        try:
            decision = self.controller.decide(self.operation(command, words, validate_only), Now(0, 0))
        except ProtocolError as refusal:
            return f"refused: {refusal.code.name} {refusal}"
        if decision.records:
            self.log += to_batch(decision.records, 0)
        for record in decision.records:
            self.controller.apply(record)
        replies = decision.reply if isinstance(decision.reply, list) else [decision.reply]
        return "\n".join([*map(self.show_reply, replies), *map(self.show_record, decision.records)])

    def operation(self, command: str, words: list[str], validate_only: bool) -> Operation[Any]:
        match command:
            case "bootstrap":
                return Bootstrap()
            case "broker":
                options = dict(word.split("=") for word in words[1:])
                return RegisterBroker(
                    int(words[0]),
                    len(self.log).to_bytes(16, "big"),
                    [Endpoint("PLAINTEXT", "localhost", 9092)],
                    options.get("rack"),
                    fenced=options.get("fenced") == "yes",
                    new_leader_epochs=options.get("unclean") == "yes",
                )
            case "producer-ids":
                return AllocateProducerIds(int(words[0]))
            case "create":
                return CreateTopics([new_topic(word) for word in words], validate_only)
            case "grow":
                return CreatePartitions([more_partitions(word) for word in words], validate_only)
            case "delete":
                return DeleteTopics([self.reference(word) for word in words])
            case "alter":
                kind, _, name = words[0].partition(":")
                return IncrementalAlterConfigs(
                    [ConfigChange(RESOURCES[kind], name, [change(word) for word in words[1:]])], validate_only
                )
            case "replace":
                kind, _, name = words[0].partition(":")
                pairs = [word.partition("=") for word in words[1:]]
                configs: list[tuple[str, str | None]] = [(key, value) for key, _, value in pairs]
                return AlterConfigs([ConfigReplacement(RESOURCES[kind], name, configs)], validate_only)
        raise ValueError(command)

    def reference(self, word: str) -> tuple[str | None, bytes]:
        number = word.removeprefix("#")
        if number == word:
            return word, ZERO_UUID
        return None, b"topic" + int(number).to_bytes(11, "big") if int(number) else ZERO_UUID

    def show_reply(self, reply: Any) -> str:
        if not hasattr(reply, "error"):
            return str(reply)
        name = reply.resource_name if hasattr(reply, "resource_name") else reply.name
        if reply.error:
            return f"{name}: {reply.error.name} {reply.message}"
        size = (
            f" partitions={reply.partitions} replicas={reply.replication_factor}" if hasattr(reply, "configs") else ""
        )
        return f"{name}: ok{size}"

    def show_record(self, record: Message) -> str:
        shown = []
        for name in type(record).__slots__:  # type: ignore[attr-defined]
            value = getattr(record, name)
            if name == "incarnation_id":
                continue
            if name == "topic_id":
                value = f"#{int.from_bytes(value[5:], 'big')}"
            if name == "end_points":
                value = [f"{point.host}:{point.port}" for point in value]
            if name == "directories":
                value = [directory for directory in value or () if directory != ZERO_UUID]
            if name in ("partition_id", "leader_epoch") or value not in (ZERO_UUID, None, [], 0, -1, -2):
                shown.append(f"{name}={value}")
        return f"+ {type(record).__name__.removesuffix('Record')} {' '.join(shown)}"


def new_topic(word: str) -> NewTopic:
    """name/partitions/replicas,config=value,... or name@0:1.2;1:2.1 for an assignment"""
    head, *configs = word.split(",")
    settings: list[tuple[str, str | None]] = [(key, value) for key, _, value in (c.partition("=") for c in configs)]
    if "@" in head:
        name, _, spread = head.partition("@")
        parts = [part.partition(":") for part in spread.split(";")]
        return NewTopic(name, assignments=[(int(p), numbers(r)) for p, _, r in parts], configs=settings)
    name, *sizes = head.split("/")
    partitions, replicas = [*map(int, sizes), -1, -1][:2]
    return NewTopic(name, partitions, replicas, configs=settings)


def more_partitions(word: str) -> MorePartitions:
    """name/count or name/count@1.2;2.1"""
    head, at, spread = word.partition("@")
    name, _, count = head.partition("/")
    return MorePartitions(name, int(count), [numbers(part) for part in spread.split(";")] if at else None)


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(".") if number]


def change(word: str) -> tuple[str, int, str | None]:
    """key=value sets, +key=value and -key=value append and subtract, !key deletes"""
    kind = CHANGES.get(word[0], AlterOp.SET)
    key, equals, value = word.lstrip("+-!").partition("=")
    return key, kind, value if equals else None


@pytest.mark.parametrize("path", scenarios("controller"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, lambda settings: Transcript())
