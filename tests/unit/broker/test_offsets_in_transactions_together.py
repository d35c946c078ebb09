"""Offsets in transactions on several nodes: the group's coordinator, the transaction's and the leaders move meanwhile.

Law X: an offset is that of the last transaction that was committed, of no other, and nobody who asks for stable offsets
sees one while a transaction may still change it.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from broker_world import part
from nodes_together import Cluster, create, made
from transactions_world import ID

from skidway.errors import ErrorCode
from skidway.groups.placement import partition_of
from skidway.groups.settings import GroupSettings
from skidway.transactions.settings import TransactionSettings

E = ErrorCode
GROUP = "billing"
TOPICS = {0: "__consumer_offsets", 1: "__transaction_state"}
PARTITIONS = 3
TRY_AGAIN = (13, 14, 15, 16, E.CONCURRENT_TRANSACTIONS)


class Story:
    """Three nodes, a producer that copies for a group, and whoever reads the group's offset."""

    def __init__(self) -> None:
        self.cluster: Cluster = made(
            transactions=TransactionSettings(state_partitions=PARTITIONS),
            groups=GroupSettings(offsets_partitions=PARTITIONS),
        )
        create(self.cluster, "t", 1)
        for key_type, key in ((0, GROUP), (1, ID)):
            self.ask(1, "FindCoordinator", version=4, key_type=key_type, coordinator_keys=[key])
        nodes = self.cluster.nodes
        self.cluster.until(lambda: all(set(TOPICS.values()) <= set(node.image.topics) for node in nodes.values()))

    def ask(self, number: int, name: str, **fields: Any) -> Any:
        client = self.cluster.client(number)
        client.send(name, **fields)
        ((_, reply),) = self.cluster.until(client.replies)
        return reply

    def coordinator(self, key_type: int) -> int:
        place = TOPICS[key_type], partition_of((GROUP, ID)[key_type], PARTITIONS)
        return int(self.cluster.until(lambda: self.cluster.leader(*place)))

    def asked(self, key_type: int, name: str, code_of: Callable[[Any], int], **fields: Any) -> Any:
        """What the coordinator says, when there is one."""
        replies: list[Any] = []

        def answered() -> bool:
            replies.append(self.ask(self.coordinator(key_type), name, **fields))
            return code_of(replies[-1]) not in TRY_AGAIN

        self.cluster.until(answered)
        return replies[-1]

    def init(self) -> tuple[int, int]:
        fields = {"version": 4, "transactional_id": ID, "transaction_timeout_ms": 60_000}
        reply = self.asked(1, "InitProducerId", lambda reply: int(reply.error_code), **fields)
        assert reply.error_code == 0
        return reply.producer_id, reply.producer_epoch

    def within(self, producer: tuple[int, int], offset: int, bumps: bool) -> None:
        about = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}
        if not bumps:
            added = self.asked(1, "AddOffsetsToTxn", error_of, version=3, group_id=GROUP, **about)
            assert added.error_code == 0
        entry = part("TxnOffsetCommit", "TxnOffsetCommitRequestPartition", 0, offset, -1, "")
        topics = [part("TxnOffsetCommit", "TxnOffsetCommitRequestTopic", "t", partitions=[entry])]
        version = 5 if bumps else 3
        fields: dict[str, Any] = {"version": version, "group_id": GROUP, "topics": topics, **about}
        reply = self.asked(0, "TxnOffsetCommit", lambda reply: int(reply.topics[0].partitions[0].error_code), **fields)
        assert reply.topics[0].partitions[0].error_code == 0

    def end(self, producer: tuple[int, int], commit: bool, bumps: bool) -> tuple[int, int]:
        """The producer as it is from then on."""
        about = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}
        reply = self.asked(1, "EndTxn", error_of, version=5 if bumps else 3, committed=commit, **about)
        assert reply.error_code == 0
        return (reply.producer_id, reply.producer_epoch) if bumps else producer

    def stable(self) -> int | None:
        """The offset; None while a transaction may change it."""
        topic = part("OffsetFetch", "OffsetFetchRequestTopics", "t", partition_indexes=[0])
        asked = part("OffsetFetch", "OffsetFetchRequestGroup", GROUP, topics=[topic])
        fields: dict[str, Any] = {"version": 8, "groups": [asked], "require_stable": True}
        reply = self.asked(0, "OffsetFetch", lambda reply: int(reply.groups[0].error_code), **fields)
        (entry,) = reply.groups[0].topics[0].partitions
        if entry.error_code == E.UNSTABLE_OFFSET_COMMIT:
            return None
        assert entry.error_code == 0
        return int(entry.committed_offset)

    def lose(self, number: int) -> None:
        """A node, its power and what it has not synced; it comes back."""
        self.cluster.kill(number, power_lost=True)
        self.cluster.pass_time(15_000)
        self.cluster.restart(number)
        self.cluster.until(self.cluster.ready)


def error_of(reply: Any) -> int:
    return int(reply.error_code)


@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("moved", [0, 1])
def test_what_is_pending_ends_though_a_coordinator_is_lost(bumps: bool, commit: bool, moved: int) -> None:
    story = Story()
    producer = story.init()
    story.within(producer, 1, bumps)
    producer = story.end(producer, True, bumps)
    story.cluster.until(lambda: story.stable() == 1)
    story.within(producer, 2, bumps)
    story.lose(story.coordinator(moved))
    assert story.stable() is None
    story.end(producer, commit, bumps)
    story.cluster.until(lambda: story.stable() is not None)
    assert story.stable() == (2 if commit else 1)


@pytest.mark.parametrize("seed", range(3))
def test_offsets_are_those_of_the_last_committed_transaction(seed: int) -> None:
    """A reader that has seen an offset never sees an older one, whoever is lost."""
    story, choose = Story(), Random(seed)
    bumps = bool(seed % 2)
    producer, wanted = story.init(), -1
    for offset in range(1, 9):
        story.within(producer, offset, bumps)
        if choose.random() < 0.4:
            story.lose(choose.choice(list(story.cluster.nodes)))
        assert story.stable() is None
        commit = choose.random() < 0.6
        producer = story.end(producer, commit, bumps)
        if choose.random() < 0.4:
            story.lose(choose.choice(list(story.cluster.nodes)))
        seen = story.stable()
        wanted = offset if commit else wanted
        assert seen in (None, wanted), "the end is certain: nobody may see what was before"
        if choose.random() < 0.5:
            story.cluster.until(lambda: story.stable() is not None)
            assert story.stable() == wanted
    story.cluster.until(lambda: story.stable() is not None)
    assert story.stable() == wanted
