"""A worker of a share group, as a process: `python share_worker.py bootstrap group topic journal seed`.

It acquires, dawdles, accepts, releases or rejects, and writes down what it was told, until it is killed. When anything
goes wrong it begins anew, as another member: its connections close, and what it held is released. Leaders do not ask
who is a member, so it does not join.
"""

import sys
import time
import uuid
from pathlib import Path
from random import Random

from share_history import ACCEPT, REJECT, RELEASE, UNKNOWN_EPOCH, Event, Got, Heard, Journal, Said

from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError, check
from skidway.wire.schema import share_acknowledge as acknowledging
from skidway.wire.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from skidway.wire.schema.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from skidway.wire.schema.share_fetch import (
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)

WAIT_MS = 300
RECORDS_MAX = 20
ANSWER_MS = 4_000
LOOK_S = 2.0
"""After so long it looks again who leads."""
DAWDLE_S = 0.02
LATE_S = 2.5
RECORD_LIMIT = 1


class Worker:
    """One life: a member id, and a session with each leader."""

    def __init__(self, client: Client, group: str, topic: str, journal: Journal, dice: Random) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.journal = journal
        self.dice = dice
        self.id = str(uuid.uuid4())
        self.sessions: dict[int, int] = {}

    def live(self) -> None:
        described = self.client.look_up(self.topic)
        leaders: dict[int, list[int]] = {}
        for partition in described.partitions.values():
            leaders.setdefault(partition.leader, []).append(partition.index)
        until = time.monotonic() + LOOK_S
        while time.monotonic() < until:
            for leader, partitions in leaders.items():
                address = self.client.picture.brokers.get(leader)
                if address is not None:
                    self.visit(leader, self.client.connect(address), described.id, partitions)

    def visit(self, leader: int, connection: Connection, topic_id: bytes, partitions: list[int]) -> None:
        before = self.epochs(leader, connection)
        sent = time.monotonic()
        answer = connection.call(self.fetch(leader, topic_id, partitions), ShareFetchResponse)
        received = time.monotonic()
        check(answer.error_code, "fetching")
        acquired: dict[int, list[AcquiredRecords]] = {}
        for found in answer.responses:
            for one in found.partitions:
                if one.acquired_records:
                    acquired[one.partition_index] = one.acquired_records
        # Afterwards, so that a leader that changed meanwhile is noticed; what was given is written down first.
        given = self.gots(acquired, sent, received)
        try:
            after = self.epochs(leader, connection)
        except ClientError:
            after = {}
        for got in given:
            same = before.get(got.partition) == after.get(got.partition)
            got.epoch = before.get(got.partition, UNKNOWN_EPOCH) if same else UNKNOWN_EPOCH
        self.journal.write(given)
        for found in answer.responses:
            for one in found.partitions:
                check(one.error_code, f"partition {one.partition_index}")
        if acquired:
            time.sleep(LATE_S if self.dice.random() < 0.01 else self.dice.random() * DAWDLE_S)
            self.settle(leader, connection, topic_id, acquired)

    def epochs(self, leader: int, connection: Connection) -> dict[int, int]:
        """Of the partitions that this node says it leads itself."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        answer = connection.call(request, MetadataResponse)
        return {
            one.partition_index: one.leader_epoch
            for found in answer.topics
            for one in found.partitions
            if one.leader_id == leader
        }

    def next_epoch(self, leader: int) -> int:
        epoch = self.sessions.get(leader, 0)
        self.sessions[leader] = epoch + 1
        return epoch

    def fetch(self, leader: int, topic_id: bytes, partitions: list[int]) -> ShareFetchRequest:
        epoch = self.next_epoch(leader)
        listed = [FetchPartition(partition_index=index) for index in partitions] if epoch == 0 else []
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=RECORDS_MAX,
            batch_size=RECORDS_MAX,
            share_acquire_mode=RECORD_LIMIT,
            topics=[FetchTopic(topic_id=topic_id, partitions=listed)] if listed else [],
        )

    def gots(self, acquired: dict[int, list[AcquiredRecords]], sent: float, received: float) -> list[Got]:
        return [
            Got(
                self.id,
                partition,
                each.first_offset,
                each.last_offset,
                each.delivery_count,
                UNKNOWN_EPOCH,
                sent,
                received,
            )
            for partition, ranges in acquired.items()
            for each in ranges
        ]

    def settle(
        self, leader: int, connection: Connection, topic_id: bytes, acquired: dict[int, list[AcquiredRecords]]
    ) -> None:
        """One verdict for each range."""
        verdicts = {
            (partition, each.first_offset, each.last_offset): self.verdict(each.delivery_count)
            for partition, ranges in acquired.items()
            for each in ranges
        }
        now = time.monotonic()
        said: list[Event] = [Said(self.id, *where, verdict, now) for where, verdict in verdicts.items()]
        self.journal.write(said)
        answer = connection.call(self.acknowledgement(leader, topic_id, verdicts), ShareAcknowledgeResponse)
        now = time.monotonic()
        check(answer.error_code, "acknowledging")
        codes = {one.partition_index: one.error_code for found in answer.responses for one in found.partitions}
        heard: list[Event] = [
            Heard(self.id, *where, verdict, codes[where[0]], now) for where, verdict in verdicts.items()
        ]
        self.journal.write(heard)

    def acknowledgement(
        self, leader: int, topic_id: bytes, verdicts: dict[tuple[int, int, int], int]
    ) -> ShareAcknowledgeRequest:
        partitions: dict[int, list[acknowledging.AcknowledgementBatch]] = {}
        for (partition, first, last), verdict in verdicts.items():
            batch = acknowledging.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=[verdict]
            )
            partitions.setdefault(partition, []).append(batch)
        listed = [
            acknowledging.AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
            for index, batches in partitions.items()
        ]
        return ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.next_epoch(leader),
            topics=[acknowledging.AcknowledgeTopic(topic_id=topic_id, partitions=listed)],
        )

    def verdict(self, count: int) -> int:
        """Seldom enough that none is released as often as it may be delivered."""
        drawn = self.dice.random()
        if count <= 2 and drawn < 0.1:
            return RELEASE
        return REJECT if drawn < 0.15 else ACCEPT


def main(bootstrap: str, group: str, topic: str, journal: str, seed: str) -> None:
    written, dice = Journal(Path(journal)), Random(seed)
    while True:
        try:
            with Client(bootstrap, client_id="share-worker", timeout_ms=ANSWER_MS) as client:
                Worker(client, group, topic, written, dice).live()
        except ClientError:
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
