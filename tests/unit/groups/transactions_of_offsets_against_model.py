"""Offsets within transactions against the naive model: everything that happens to committed offsets, and producers that
commit offsets in transactions and end them, late or never, while members come and go."""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import rule
from offsets_against_model import GROUPS, PARTITIONS, OffsetsAgainstModel

from skidway.groups.operations import CommitOffsetsInTransaction, EndOffsetsTransaction, FetchOffsets, OffsetToCommit
from skidway.records.control import EndTransaction
from skidway.runtime.log_store import Marker, Producer

PRODUCERS = [1, 2, 3]


class TransactionsOfOffsetsAgainstModel(OffsetsAgainstModel):
    @rule(
        group_id=st.sampled_from(GROUPS),
        partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True),
        producer_id=st.sampled_from(PRODUCERS),
        who=st.sampled_from(["right", "right", "nobody", "nobody", "wrong", "early", "late", "nameless", "static"]),
        metadata=st.sampled_from(["", "m", "x" * 11]),
        version=st.sampled_from([6, 5, 3]),
    )
    def commit_in_transaction(
        self, group_id: str, partitions: Any, producer_id: int, who: str, metadata: str, version: int
    ) -> None:
        (member_id, generation), instance_id = self.identity(group_id), None
        match who:
            case "nobody":
                member_id, generation = "", -1
            case "wrong":
                member_id = "ghost"
            case "early":
                generation -= 1
            case "late":
                generation += 1
            case "nameless":
                member_id = ""
            case "static":
                member_id, generation, instance_id = "", -1, "nobody's"
        self.offset += 1
        offsets = [OffsetToCommit(topic, index, self.offset, self.offset % 3, metadata) for topic, index in partitions]
        producer = Producer(producer_id, self.offset % 5)
        call = CommitOffsetsInTransaction(group_id, offsets, producer, member_id, instance_id, generation, version)
        number = self.world.submit(call)
        self.expect(number, self.model.commit(call))

    @rule(producer_id=st.sampled_from(PRODUCERS), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        marker = Marker(Producer(producer_id, 7), EndTransaction(committed, 1))
        number = self.world.submit(EndOffsetsTransaction(marker))
        self.expect(number, self.model.end_transaction(producer_id, committed=committed))

    @rule(
        group_ids=st.lists(st.sampled_from(GROUPS), min_size=1, max_size=2, unique=True),
        partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2, unique=True),
        meanwhile=st.sampled_from(["nothing", "commit", "wait", "delete", "restart"]),
        committed=st.booleans(),
    )
    def whole_transaction(self, group_ids: list[str], partitions: Any, meanwhile: str, committed: bool) -> None:
        """What rarely happens in a row by itself."""
        first = group_ids[0]
        self.commit_offsets(first, partitions, "nobody", "", -1, 9)
        for group_id in group_ids:
            self.commit_in_transaction(group_id, partitions, 4, "nobody", "m", 5)
        match meanwhile:
            case "commit":
                self.commit_offsets(first, partitions[:1], "nobody", "", -1, 9)
            case "wait":
                self.wait(60_000)
                self.wait(10_000)
                self.offsets_are_the_models()
            case "delete":
                self.delete_offsets(first, partitions[:1])
            case "restart":
                self.restart(True)
        self.end_transaction(4, committed)

    @rule(
        group_id=st.sampled_from(GROUPS),
        partitions=st.none() | st.lists(st.sampled_from([*PARTITIONS, ("gone", 0)]), max_size=3),
    )
    def fetch_stable(self, group_id: str, partitions: Any) -> None:
        call = FetchOffsets(group_id, partitions, require_stable=True)
        number = self.world.submit(call)
        self.expect(number, self.model.fetch(call))
