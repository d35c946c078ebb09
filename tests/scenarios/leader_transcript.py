"""The leader of one partition driven by lines of text, for transcripts. Node 1 leads; the others are its followers.

    lead [in-sync=1,2,3] [replicas=1,2,3] [end=10] [min=1] [epoch=5]
                              the metadata makes node 1 the leader; its log ends at `end`; `min` is min.insync.replicas.
                              The values here are those that hold where none is named
    append COUNT [unsynced]   producers append so many records; unsynced ones are not stored yet
    sync                      now they are
    fetch N OFFSET [broker-epoch=E]
                              follower N asks for records from there, so it has stored everything below
    wait MS                   time passes; the leader looks every 500 ms who lags (replica.lag.time.max.ms is 1000)
    accept                    the controller commits what is proposed, and answers; the metadata comes later
    refuse ERROR              the controller answers with this error instead
    metadata                  what the controller has committed arrives
    fence N                   the controller fences broker N and takes it out of the in-sync set
    unfence N                 broker N has restarted, and is registered in a new epoch
    elect N                   the controller makes N the leader in a new epoch
    min COUNT                 min.insync.replicas is changed
    produce ACKS              a producer asks whether it may write (acks=all, acks=1)
    client EPOCH              a client says which leader epoch it knows
    replicas                  what the leader knows of each

After the answer to a command follow the high watermark, the in-sync set and the proposal, each if it has changed.
`counts` are the replicas that the high watermark waits for. Broker N is registered in epoch N0, after a restart N1.
"""

from transcripts import NOTHING

from skidway.errors import ErrorCode, ProtocolError
from skidway.replica.leader import ACKS_ALL, Leader, Leadership, NotLeading
from skidway.replica.role import PartitionRole

ME = 1
LAG_MS = 1_000
LOOK_EVERY_MS = 500


class Transcript:
    def __init__(self) -> None:
        self.now_ms = 0
        self.end_offset = 0
        self.min_in_sync = 1
        self.eligible: dict[int, int] = {}
        """Brokers that are not fenced, with the epochs of their registrations."""
        self.role = PartitionRole(-1, 0, 0, [], [], self.eligible)
        """As the controller has committed it."""
        self.leader: Leadership = NotLeading(-1, 0)
        self.told: list[str] = []
        self.seen: list[str] = []

    def run(self, line: str) -> str:
        command, *words = line.split()
        plain = [word for word in words if "=" not in word or command == "produce"]
        options = dict(word.split("=") for word in words if "=" in word)
        self.told = []
        try:
            getattr(self, f"do_{command}")(plain, options)
        except ProtocolError as refusal:
            self.told.append(f"{refusal.code.name} {refusal}")
        now = self.state()
        self.told += [line for line in now if line not in self.seen]
        self.seen = now
        return "\n".join(self.told) or NOTHING

    def state(self) -> list[str]:
        leader = self.leader
        if not isinstance(leader, Leader):
            return [f"node {leader.leader_id} leads in epoch {leader.epoch}"]
        proposal = leader.proposal
        proposed = "proposes nothing"
        if proposal is not None:
            members = " ".join(f"{node_id}(epoch {epoch})" for node_id, epoch in proposal.members)
            waits = ", and waits for the metadata" if proposal.settled else ""
            proposed = f"proposes {members} over partition epoch {proposal.partition_epoch}{waits}"
        return [
            f"high watermark {leader.high_watermark}",
            f"in sync {names(leader.in_sync)}, counts {names(leader.maximal)}",
            proposed,
        ]

    # --- the controller ---

    def do_lead(self, words: list[str], options: dict[str, str]) -> None:
        replicas = numbers(options.get("replicas", "1,2,3"))
        in_sync = numbers(options.get("in-sync", "1,2,3"))
        self.end_offset = int(options.get("end", 10))
        self.min_in_sync = int(options.get("min", 1))
        self.eligible.update({node_id: 10 * node_id for node_id in replicas})
        self.role = PartitionRole(ME, int(options.get("epoch", 5)), 7, replicas, in_sync, self.eligible)
        self.do_metadata([], {})

    def do_metadata(self, words: list[str], options: dict[str, str]) -> None:
        role, leader = self.role, self.leader
        if role.leader != ME:
            self.leader = NotLeading(role.leader, role.leader_epoch, role.partition_epoch, role.replicas, role.in_sync)
        elif isinstance(leader, Leader):
            leader.on_metadata(role, self.end_offset, self.now_ms)
        else:
            self.leader = Leader(ME, role, self.end_offset, self.end_offset, self.now_ms, LAG_MS, self.min_in_sync)

    def do_accept(self, words: list[str], options: dict[str, str]) -> None:
        proposal = self.leader.proposal
        assert proposal is not None, "nothing is proposed"
        self.change(in_sync=[node_id for node_id, _ in proposal.members])
        self.leader.on_altered(proposal, self.role.leader_epoch, self.role.partition_epoch, self.role.in_sync)

    def do_refuse(self, words: list[str], options: dict[str, str]) -> None:
        proposal = self.leader.proposal
        assert proposal is not None, "nothing is proposed"
        self.leader.on_alter_failed(proposal, ErrorCode[words[0]])

    def do_fence(self, words: list[str], options: dict[str, str]) -> None:
        node_id = int(words[0])
        del self.eligible[node_id]
        self.change(in_sync=[each for each in self.role.in_sync if each != node_id])

    def do_unfence(self, words: list[str], options: dict[str, str]) -> None:
        self.eligible[int(words[0])] = 10 * int(words[0]) + 1

    def do_elect(self, words: list[str], options: dict[str, str]) -> None:
        self.change(leader=int(words[0]))

    def change(self, *, leader: int | None = None, in_sync: list[int] | None = None) -> None:
        before = self.role
        self.role = PartitionRole(
            before.leader if leader is None else leader,
            before.leader_epoch + (leader is not None),
            before.partition_epoch + 1,
            before.replicas,
            before.in_sync if in_sync is None else in_sync,
            self.eligible,
        )

    # --- followers, clients, the disk ---

    def do_append(self, words: list[str], options: dict[str, str]) -> None:
        self.end_offset += int(words[0])
        if "unsynced" not in words:
            self.leader.on_stored(self.end_offset)

    def do_sync(self, words: list[str], options: dict[str, str]) -> None:
        self.leader.on_stored(self.end_offset)

    def do_fetch(self, words: list[str], options: dict[str, str]) -> None:
        node_id, offset = map(int, words)
        broker_epoch = int(options.get("broker-epoch", self.eligible.get(node_id, 10 * node_id)))
        self.leader.on_fetch(node_id, broker_epoch, offset, self.end_offset, self.now_ms)

    def do_wait(self, words: list[str], options: dict[str, str]) -> None:
        end_ms = self.now_ms + int(words[0])
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + LOOK_EVERY_MS, end_ms)
            self.leader.check_lag(self.end_offset, self.now_ms)

    def do_min(self, words: list[str], options: dict[str, str]) -> None:
        self.min_in_sync = self.leader.min_in_sync = int(words[0])

    def do_produce(self, words: list[str], options: dict[str, str]) -> None:
        self.leader.admit(ACKS_ALL if words[0] == "acks=all" else 1)
        self.told.append("ok")

    def do_client(self, words: list[str], options: dict[str, str]) -> None:
        self.leader.check_epoch(int(words[0]))
        self.told.append("ok")

    def do_replicas(self, words: list[str], options: dict[str, str]) -> None:
        leader = self.leader
        assert isinstance(leader, Leader)
        self.told.append(f"node {ME} leads, has stored {leader.stored} of {self.end_offset}")
        for node_id in leader.replicas:
            follower = leader.follower(node_id)
            if follower is not None:
                stored = f"has stored {follower.offset}" if follower.offset >= 0 else "has not fetched in this epoch"
                self.told.append(f"node {node_id} {stored}{', in sync' if node_id in leader.in_sync else ''}")


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def names(node_ids: list[int]) -> str:
    return " ".join(map(str, node_ids))
