"""An administrator who changes the voters of the metadata quorum while others suffer: one out, one in, one at a time.

Who votes is asked first, as people do. Whoever was taken out is added again later, by its directory; in a cluster with
more nodes than voters others take their places. A change that is refused or not answered is left at that: it may hold
or not, and the laws of the quorum hold either way.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from skidway.errors import ErrorCode
from skidway.quorum.control import LISTENER
from skidway.quorum.wire import METADATA_TOPIC
from skidway.sim.clients.base import Client
from skidway.sim.world.network import Address
from skidway.wire.schema.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from skidway.wire.schema.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from skidway.wire.schema.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

TRIES = 12
RETRY_MS = 250
RETURN_MS_MAX = 4_000
ANSWER_MS = 6_000


class VoterChanges:
    def __init__(self, admin: Client, addresses: dict[int, Address]) -> None:
        self.admin = admin
        self.addresses = addresses
        self.halted: Callable[[], bool] = lambda: False
        """Whether a disk was lost in this run: whoever votes besides its machine is needed."""
        self._asked = self._done = 0

    @property
    def is_unsure(self) -> bool:
        """Whether a removal may still come into force."""
        return self._asked > self._done

    def change(self, random: Random) -> None:
        """One voter less, or one more where there is somebody else."""

        def decide(data: ResponsePartitionData) -> None:
            voters, others = data.current_voters, data.observers
            if others and (len(voters) == 1 or random.random() < 0.4):
                self._add(random.choice(others), 1)
            elif len(voters) > 1:
                # The leader of the quorum itself as often as all others together.
                leader = [voter for voter in voters if voter.replica_id == data.leader_id]
                chosen = random.choice(leader if leader and random.random() < 0.5 else voters)
                self._remove(chosen, random.randrange(1, RETURN_MS_MAX))

        self._describe(decide, TRIES)

    def dismiss(self, node_id: int, then: Callable[[bool], None], tries: int = TRIES) -> None:
        """Not to come back. `then` hears whether it is known to be no voter any more."""

        def decide(data: ResponsePartitionData) -> None:
            found = [voter for voter in data.current_voters if voter.replica_id == node_id]
            if not found:
                then(True)
            elif tries <= 1 or len(data.current_voters) == 1 or self.halted():
                then(False)
            else:
                request = RemoveRaftVoterRequest(None, node_id, found[0].replica_directory_id)
                self._asked += 1
                self.admin.ask(-1, request, lambda reply: answered(found[0], reply), ANSWER_MS)

        def answered(voter: ReplicaState, reply: RemoveRaftVoterResponse | None) -> None:
            self._tell("dismissed", voter, reply)
            self._done += _is_known(reply)
            self.admin.after(RETRY_MS, lambda: self.dismiss(node_id, then, tries - 1))

        self._describe(decide, TRIES, lambda: then(False))

    # --- inside ---

    def _describe(
        self, found: Callable[[ResponsePartitionData], None], tries: int, failed: Callable[[], None] = lambda: None
    ) -> None:
        request = DescribeQuorumRequest(topics=[RequestTopicData(METADATA_TOPIC, [RequestPartitionData(0)])])

        def answered(reply: DescribeQuorumResponse | None) -> None:
            data = None if reply is None or reply.error_code else reply.topics[0].partitions[0]
            if data is not None and not data.error_code:
                found(data)
            elif tries > 1:
                self.admin.after(RETRY_MS, lambda: self._describe(found, tries - 1, failed))
            else:
                failed()

        self.admin.ask(-1, request, answered)

    def _remove(self, voter: ReplicaState, return_ms: int) -> None:
        if self.halted():
            return
        request = RemoveRaftVoterRequest(None, voter.replica_id, voter.replica_directory_id)
        self._asked += 1

        def answered(reply: RemoveRaftVoterResponse | None) -> None:
            self._tell("removed", voter, reply)
            self._done += _is_known(reply)
            self.admin.after(return_ms, lambda: self._add(voter, TRIES))

        self.admin.ask(-1, request, answered, ANSWER_MS)

    def _add(self, observer: ReplicaState, tries: int) -> None:
        address = self.addresses.get(observer.replica_id)
        if address is None:
            return  # it is about to go for good
        host, port = address
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=ANSWER_MS // 2,
            voter_id=observer.replica_id,
            voter_directory_id=observer.replica_directory_id,
            listeners=[Listener(LISTENER, host, port)],
        )

        def answered(reply: AddRaftVoterResponse | None) -> None:
            self._tell("added", observer, reply)
            code = ErrorCode.REQUEST_TIMED_OUT if reply is None else reply.error_code
            if tries > 1 and code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
                self.admin.after(RETRY_MS, lambda: self._add(observer, tries - 1))

        self.admin.ask(-1, request, answered, ANSWER_MS)

    def _tell(self, what: str, voter: ReplicaState, reply: Any) -> None:
        code = None if reply is None else ErrorCode(reply.error_code)
        self.admin.say(f"voter {voter.replica_id} {what}: {'no answer' if code is None else code.name}")
        if code is ErrorCode.NONE:
            self.admin.world.mark(f"voter {what}")


def _is_known(reply: RemoveRaftVoterResponse | None) -> bool:
    """Whether it is certain what became of a removal."""
    unsure = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return reply is not None and reply.error_code not in unsure
