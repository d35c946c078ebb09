"""The law of decide/apply machines, over random histories: deciding changes nothing, applying is all there is.

After every operation the image equals one rebuilt from the bytes of the log, so a restart forgets and invents
nothing; and a few sums that must hold in any image are held against it.
"""

import random
from collections import Counter
from copy import deepcopy
from typing import Any

import pytest

from skidway.errors import ErrorCode
from skidway.limits import Limits
from skidway.metadata import topic_configs
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.controller import Controller
from skidway.metadata.image import NO_LEADER, Endpoint, Image
from skidway.metadata.operations import (
    AllocateProducerIds,
    AlterConfigs,
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

LIMITS = Limits(partitions_per_topic_max=8, partitions_max=10)
GOOD_NAMES = ["a", "a.b", "a_b", "orders", "orders-2", "__consumer_offsets"]
BAD_NAMES = ["..", "bad name", "", "__cluster_metadata"]
Settings = list[tuple[str, str | None]]
GOOD_SETTINGS: Settings = [
    ("retention.ms", "1"),
    ("segment.bytes", "2000000"),
    ("cleanup.policy", "delete"),
    ("flush", "os"),
]
ODD_SETTINGS: Settings = [("retention.ms", "x"), ("cleanup.policy", "squeeze"), ("no.such", "1"), ("flush", None)]
BROKER_SETTINGS: Settings = [("log.retention.ms", "5"), ("message.max.bytes", "99"), ("node.id", "1")]


def some_operation(rng: random.Random, image: Image) -> Operation[Any]:
    def name() -> str:
        return rng.choice(GOOD_NAMES if rng.random() < 0.9 else BAD_NAMES)

    def configs() -> list[tuple[str, str | None]]:
        pool: Settings = rng.choice([GOOD_SETTINGS, GOOD_SETTINGS, GOOD_SETTINGS, ODD_SETTINGS, BROKER_SETTINGS])
        return [rng.choice(pool) for _ in range(rng.randrange(3))]

    def resource() -> tuple[int, str]:
        kind = rng.choice([2, 2, 2, 2, 2, 2, 4, 4, 8, 16, 32, 77])
        return kind, rng.choice(["", "0", "1", "9", "x"]) if kind == ResourceType.BROKER else name()

    def assignment() -> list[int]:
        return [rng.randrange(4) for _ in range(rng.randrange(3))]

    match rng.randrange(9):
        case 0 | 1 | 2:
            topics = [
                NewTopic(
                    name(),
                    rng.choice([-2, 0, 1, 3, 8, 9]) if rng.random() < 0.4 else -1,
                    rng.choice([0, 1, 2, 5]) if rng.random() < 0.4 else -1,
                    [(index, assignment()) for index in range(rng.randrange(3))] if rng.random() < 0.2 else [],
                    configs() if rng.random() < 0.5 else [],
                )
                for _ in range(rng.randrange(1, 4))
            ]
            return CreateTopics(topics, rng.random() < 0.2)
        case 3:
            ids = [bytes(16), bytes(15) + b"\x07", *image.topics_by_id]
            return DeleteTopics(
                [(name(), bytes(16)) if rng.random() < 0.5 else (None, rng.choice(ids)) for _ in range(2)]
            )
        case 4:
            return CreatePartitions(
                [
                    MorePartitions(name(), rng.randrange(10), [assignment()] if rng.random() < 0.2 else None)
                    for _ in range(rng.randrange(1, 3))
                ],
                rng.random() < 0.2,
            )
        case 5:
            return AlterConfigs([ConfigReplacement(*resource(), configs()) for _ in range(2)], rng.random() < 0.2)
        case 6:
            changes = [(setting, rng.randrange(5), value) for setting, value in configs()]
            return IncrementalAlterConfigs([ConfigChange(*resource(), changes)], rng.random() < 0.2)
        case 7:
            return AllocateProducerIds(rng.randrange(3))
        case _:
            broker = rng.randrange(3)
            return RegisterBroker(
                broker,
                rng.randbytes(16),
                [Endpoint("PLAINTEXT", "localhost", 9092 + broker)],
                rack=rng.choice([None, "r1", "r2"]),
                log_dirs=[bytes([1 + broker, number]) * 8 for number in range(broker)],
                features={"metadata.version": (1, 25)},
                fenced=rng.random() < 0.3,
                new_leader_epochs=rng.random() < 0.5,
            )


@pytest.mark.parametrize("seed", range(40))
def test_decide_apply_rebuild_compare(seed: int) -> None:
    rng = random.Random(seed)
    controller = Controller(rng, LIMITS)
    log = bytearray()
    producer_ids: set[int] = set()
    for _ in range(60):
        operation = some_operation(rng, controller.image) if log else Bootstrap()
        before = deepcopy(controller.image)
        decision = controller.decide(operation, Now(0, 0))
        assert controller.image == before, "deciding changed the image"

        if getattr(operation, "validate_only", False):
            assert decision.records == []
        batch = to_batch(decision.records, 0) if decision.records else bytearray()
        for record in decision.records:
            controller.apply(record)
        log += batch
        if isinstance(operation, AllocateProducerIds):
            block = set(range(decision.reply.first, decision.reply.first + decision.reply.count))
            assert not block & producer_ids
            producer_ids |= block

        restarted = Controller(rng, LIMITS)
        for record in from_batches(log):
            restarted.apply(record)
        assert restarted.image == controller.image, "the log tells another story"
        check_sums(controller.image)


def check_sums(image: Image) -> None:
    assert {topic.id: topic for topic in image.topics.values()} == image.topics_by_id
    assert len(image.alike) == len(image.topics)
    held = Counter(
        broker for topic in image.topics.values() for partition in topic.partitions for broker in partition.replicas
    )
    assert held == image.replica_counts
    assert all(count <= LIMITS.partitions_max for count in held.values())
    for topic in image.topics.values():
        assert 1 <= len(topic.partitions) <= LIMITS.partitions_per_topic_max
        assert len({len(partition.replicas) for partition in topic.partitions}) == 1
        for index, partition in enumerate(topic.partitions):
            assert partition.index == index
            assert partition.leader in (partition.isr or [NO_LEADER])
            assert set(partition.isr) <= set(partition.replicas)
            assert len(partition.directories) == len(partition.replicas)
    for (kind, name), settings in image.configs.items():
        assert settings
        if kind == ResourceType.TOPIC:
            assert name in image.topics
            topic_configs.resolve(settings, image.defaults_for(0, {}))


def test_most_operations_of_the_random_histories_do_something() -> None:
    """The test above means little if nearly everything is refused."""
    outcomes: Counter[ErrorCode] = Counter()
    for seed in range(40):
        rng = random.Random(seed)
        controller = Controller(rng, LIMITS)
        for _ in range(60):
            decision = controller.decide(some_operation(rng, controller.image), Now(0, 0))
            for record in decision.records:
                controller.apply(record)
            if isinstance(decision.reply, list):
                outcomes.update(result.error for result in decision.reply)
    assert outcomes[ErrorCode.NONE] > 400
    assert set(outcomes) >= {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
