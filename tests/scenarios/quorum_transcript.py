"""A metadata quorum driven by lines of text, for transcripts: real machines, logs in memory, a network without delay.

    nodes 1 2 3 [observers=4,5] [batch=1]    start the nodes; those before `observers` are the voters. A fetch brings up
                                    to `batch` records, or 100
    timeout N                       the patience of node N ends now (its election timeout, or its wait for the leader)
    wait MS                         time passes; everything that becomes due happens
    append N VALUE ...              node N, which believes that it leads, appends records
    cut A>B ...  cut N ...          nothing gets from A to B any more; nothing gets to N or from it
    heal                            all cuts end
    crash N ...                     the process is killed: it loses what is not synced, and connections are refused
    start N ...                     the process starts again from its disk
    slow N, sync N                  what N appends is not synced before `sync N`
    resign N                        node N is asked to step down
    add M at=N, remove M at=N       an operator asks node N to change the voters
    vote TO from=N epoch=E log=END@EPOCH [pre]    a request as if from node N arrives; `log` is the end of N's log and
                                    the epoch of its last record
    begin TO from=N epoch=E         BeginQuorumEpoch: N says that it leads
    fetch TO from=N epoch=E log=END@EPOCH
    snapshot N                      node N keeps what is committed in a snapshot, and the log from there on
    logs                            what each node has, its snapshot in brackets

A command ends when no message is left. With `hold` at its end the messages stay where they are until `deliver`, which
takes all of them, or `deliver A>B ...`, which takes those of these links only. A message is one line, `A > B request:
answer`. `END@EPOCH` in it is the end of the sender's log and the epoch of its last record. A fetch that finds nothing
new waits at the leader for up to 300 ms, as in the product; it is shown if it says something new about the sender's
log. A line `N: ...` says what became of a node. Waits that are drawn at random are always the shortest ones.
"""

from dataclasses import dataclass
from typing import Any

from metadata_logs import member, voter_set
from quorum_disks import Disk, DiskMemory, Entry, MemoryLog
from transcripts import NOTHING

from skidway.errors import ProtocolError
from skidway.quorum.machine import Quorum
from skidway.quorum.membership import add_voter, remove_voter
from skidway.quorum.messages import (
    Answer,
    Ask,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    SnapshotAnswer,
    Vote,
    VoteAnswer,
)
from skidway.quorum.role import Role
from skidway.quorum.settings import QuorumSettings
from skidway.quorum.voters import Voter, Voters

SETTINGS = QuorumSettings()
STEPS_MAX = 1_000
"""Messages and moments in one command."""


class Shortest:
    """Nothing is left to chance: every wait is the shortest there can be, and the first of several is chosen."""

    def randbytes(self, size: int) -> bytes:
        return bytes(size)

    def randrange(self, stop: int) -> int:
        return 0


@dataclass
class Parked:
    """A fetch that the leader holds back until there is something to say."""

    sender: int
    ask: Ask
    until_ms: int


class Node:
    def __init__(self, node_id: int, voters: Voters, batch: int) -> None:
        self.node_id = node_id
        self.disk = Disk()
        self._batch = batch
        self.slow = False
        self.parked: list[Parked] = []
        self._voters = voters
        self.machine: Quorum | None = None
        self.log = MemoryLog(self.disk, batch)

    def stop(self) -> None:
        self.machine = None
        self.log = MemoryLog(self.disk, self._batch)

    def start(self, now_ms: int) -> None:
        self.log = MemoryLog(self.disk, self._batch)
        history = self.log.history(self._voters)
        memory = DiskMemory(self.disk)
        self.machine = Quorum(member(self.node_id), history, self.log, memory, Shortest(), SETTINGS, now_ms)

    @property
    def state(self) -> str:
        quorum = self.machine
        if quorum is None:
            return "down"
        place = "" if quorum.is_voter else ", not a voter"
        following = f" of {quorum.leader}" if quorum.role is Role.FOLLOWER else ""
        return f"{quorum.role.value}{following} in epoch {quorum.epoch}{place}"

    @property
    def committed(self) -> int:
        return 0 if self.machine is None else self.machine.high_watermark

    @property
    def voter_ids(self) -> list[int]:
        return [] if self.machine is None else list(self.machine.voters.ids)


class Transcript:
    def __init__(self) -> None:
        self.now_ms = 0
        self.nodes: dict[int, Node] = {}
        self.flying: list[tuple[int, Ask]] = []
        self.cuts: set[tuple[int, int]] = set()
        self.seen: dict[int, tuple[str, int, list[int], str | None]] = {}
        self.positions: dict[tuple[int, int], int] = {}
        """Where the last fetch of one node from another began."""
        self.told: list[str] = []
        self.steps = 0

    def run(self, line: str) -> str:
        command, *words = line.split()
        held = "hold" in words
        plain = [word for word in words if "=" not in word and word != "hold"]
        options = dict(word.split("=") for word in words if "=" in word)
        self.told, self.steps = [], 0
        getattr(self, f"do_{command}")(plain, options)
        self.settle()
        if not held and command != "deliver":
            self.deliver_all()
        return "\n".join(self.told) or NOTHING

    # --- commands ---

    def do_nodes(self, words: list[str], options: dict[str, str]) -> None:
        observers = [int(each) for each in options.get("observers", "").split(",") if each]
        voters = voter_set(*map(int, words))
        batch = int(options.get("batch", 100))
        self.nodes = {node_id: Node(node_id, voters, batch) for node_id in [*map(int, words), *observers]}
        for node in self.nodes.values():
            node.start(self.now_ms)

    def do_timeout(self, words: list[str], options: dict[str, str]) -> None:
        quorum = self.machine(words[0])
        quorum.patience.deadline_ms = self.now_ms
        quorum.on_time(self.now_ms)

    def do_wait(self, words: list[str], options: dict[str, str]) -> None:
        end_ms = self.now_ms + int(words[0])
        while (due_ms := self.next_deadline_ms()) <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.count_step()
            for node in self.nodes.values():
                if node.machine is not None and node.machine.deadline_ms <= self.now_ms:
                    node.machine.on_time(self.now_ms)
                    self.settle()
                    self.deliver_all()
            self.settle()
            self.deliver_all()
        self.now_ms = end_ms

    def do_append(self, words: list[str], options: dict[str, str]) -> None:
        quorum = self.machine(words[0])
        if not quorum.leads:
            self.told.append(f"refused: node {words[0]} does not lead")
            return
        for value in words[1:]:
            self.nodes[int(words[0])].log.append(value, quorum.epoch)

    def do_cut(self, words: list[str], options: dict[str, str]) -> None:
        for word in words:
            sender, arrow, receiver = word.partition(">")
            if arrow:
                self.cuts.add((int(sender), int(receiver)))
            else:
                self.cuts |= {(int(word), other) for other in self.nodes} | {(other, int(word)) for other in self.nodes}

    def do_heal(self, words: list[str], options: dict[str, str]) -> None:
        self.cuts.clear()

    def do_crash(self, words: list[str], options: dict[str, str]) -> None:
        for word in words:
            node = self.nodes[int(word)]
            node.stop()
            for other in self.nodes.values():
                other.parked = [parked for parked in other.parked if parked.sender != node.node_id]
            self.flying = [(sender, ask) for sender, ask in self.flying if sender != node.node_id]
            waiting, node.parked = node.parked, []
            for parked in waiting:
                self.unanswered(parked.sender, parked.ask)

    def do_start(self, words: list[str], options: dict[str, str]) -> None:
        for word in words:
            self.nodes[int(word)].start(self.now_ms)

    def do_slow(self, words: list[str], options: dict[str, str]) -> None:
        self.nodes[int(words[0])].slow = True

    def do_sync(self, words: list[str], options: dict[str, str]) -> None:
        self.nodes[int(words[0])].slow = False

    def do_resign(self, words: list[str], options: dict[str, str]) -> None:
        self.machine(words[0]).resign(self.now_ms)

    def do_add(self, words: list[str], options: dict[str, str]) -> None:
        new = Voter(member(int(words[0])), f"host{words[0]}", 9000 + int(words[0]))
        try:
            add_voter(self.machine(options["at"]), new, self.now_ms, 0)
        except ProtocolError as refusal:
            self.told.append(f"refused: {refusal.code.name} {refusal}")

    def do_remove(self, words: list[str], options: dict[str, str]) -> None:
        try:
            remove_voter(self.machine(options["at"]), member(int(words[0])), self.now_ms, 0)
        except ProtocolError as refusal:
            self.told.append(f"refused: {refusal.code.name} {refusal}")

    def do_vote(self, words: list[str], options: dict[str, str]) -> None:
        end, _, epoch = options["log"].partition("@")
        candidate, to = member(int(options["from"])), member(int(words[0]))
        vote = Vote(to, candidate, int(options["epoch"]), int(epoch), int(end), "pre" in words)
        self.arrive(candidate.node_id, Ask(to.node_id, vote), awaited=False)

    def do_begin(self, words: list[str], options: dict[str, str]) -> None:
        leader, to = int(options["from"]), int(words[0])
        self.arrive(leader, Ask(to, BeginEpoch(member(to), leader, int(options["epoch"]))), awaited=False)

    def do_fetch(self, words: list[str], options: dict[str, str]) -> None:
        end, _, epoch = options["log"].partition("@")
        replica = member(int(options["from"]))
        fetch = Fetch(replica, int(options["epoch"]), int(end), int(epoch), 0)
        self.arrive(replica.node_id, Ask(int(words[0]), fetch), awaited=False)

    def do_deliver(self, words: list[str], options: dict[str, str]) -> None:
        if not words:
            self.deliver_all()
            return
        links = [tuple(map(int, word.split(">"))) for word in words]
        chosen = [(sender, ask) for sender, ask in self.flying if (sender, ask.to) in links]
        self.flying = [each for each in self.flying if each not in chosen]
        for sender, ask in chosen:
            self.arrive(sender, ask)

    def do_logs(self, words: list[str], options: dict[str, str]) -> None:
        for node in self.nodes.values():
            records = [f"{show_entry(entry)}@{entry.epoch}" for entry in node.log.whole()]
            start = node.log.start_offset
            parts = [f"[{' '.join(records[:start])}]"] if start else []
            parts += records[start:]
            committed = "" if node.machine is None else f", {node.committed} committed"
            self.told.append(f"{node.node_id} has {' '.join(parts) or 'nothing'}{committed}")

    def do_snapshot(self, words: list[str], options: dict[str, str]) -> None:
        node, quorum = self.nodes[int(words[0])], self.machine(words[0])
        end_offset = node.log.snapshot_end(quorum.high_watermark)
        node.log.take_snapshot(end_offset, quorum.history.at(end_offset))
        quorum.history.forget_before(end_offset)

    # --- what follows from them ---

    def machine(self, node_id: str) -> Quorum:
        found = self.nodes[int(node_id)].machine
        assert found is not None, f"node {node_id} is down"
        return found

    def count_step(self) -> None:
        self.steps += 1
        assert self.steps < STEPS_MAX, "this does not end: the machines ask or are woken again and again"

    def next_deadline_ms(self) -> int:
        machines = [node.machine.deadline_ms for node in self.nodes.values() if node.machine is not None]
        return min(machines + [parked.until_ms for node in self.nodes.values() for parked in node.parked])

    def settle(self) -> None:
        """After each step: sync, take messages out, answer fetches that were held back, say what changed."""
        for node in self.nodes.values():
            if node.machine is None:
                continue
            if not node.slow and node.log.synced_offset < node.log.end_offset:
                node.log.sync()
                node.machine.on_synced(self.now_ms)
            self.flying += [(node.node_id, ask) for ask in node.machine.outbox]
            node.machine.outbox.clear()
        self.tell_changes()
        for node in self.nodes.values():
            self.release(node)

    def release(self, node: Node) -> None:
        waiting, node.parked = node.parked, []
        for parked in waiting:
            request = parked.ask.request
            assert node.machine is not None
            assert isinstance(request, Fetch)
            answer = node.machine.fetch_answer(request)
            if says_something(answer, request) or parked.until_ms <= self.now_ms:
                self.answered(parked.sender, parked.ask, answer)
            else:
                node.parked.append(parked)

    def tell_changes(self) -> None:
        for node in self.nodes.values():
            trouble = None if node.machine is None else node.machine.trouble
            now = (node.state, node.committed, node.voter_ids, trouble)
            before = self.seen.get(node.node_id, ("", 0, node.voter_ids, None))
            self.seen[node.node_id] = now
            if now[0] != before[0]:
                self.told.append(f"{node.node_id}: {now[0]}")
            if node.machine is not None and now[1] != before[1]:
                self.told.append(f"{node.node_id}: {now[1]} committed")
            if now[2] != before[2] and now[2] and before[2]:
                self.told.append(f"{node.node_id}: the voters are {' '.join(map(str, now[2]))}")
            if trouble is not None and trouble != before[3]:
                self.told.append(f"{node.node_id}: trouble: {trouble}")

    def deliver_all(self) -> None:
        while self.flying:
            sender, ask = self.flying.pop(0)
            self.arrive(sender, ask)

    def arrive(self, sender: int, ask: Ask, *, awaited: bool = True) -> None:
        """`awaited`: a machine sent it and waits for the answer."""
        self.count_step()
        receiver = self.nodes[ask.to]
        if awaited and (sender, ask.to) in self.cuts:
            if not isinstance(ask.request, Fetch):
                self.told.append(f"{sender} > {ask.to} {show_request(ask.request)}: lost")
            return
        if receiver.machine is None:
            self.told.append(f"{sender} > {ask.to} {show_request(ask.request)}: refused")
            self.unanswered(sender, ask)
            return
        answer = deliver(receiver.machine, ask, self.now_ms)
        if not awaited:
            self.told.append(f"{sender} > {ask.to} {show_request(ask.request)}: {show_answer(answer)}")
        elif isinstance(ask.request, Fetch) and not says_something(answer, ask.request):
            receiver.parked.append(Parked(sender, ask, self.now_ms + SETTINGS.fetch_wait_ms))
            if self.positions.get((sender, ask.to)) != ask.request.offset:
                self.told.append(f"{sender} > {ask.to} {show_request(ask.request)}: waits")
        else:
            self.answered(sender, ask, answer)
        if isinstance(ask.request, Fetch):
            self.positions[sender, ask.to] = ask.request.offset
        self.settle()

    def answered(self, sender: int, ask: Ask, answer: Answer) -> None:
        lost = (ask.to, sender) in self.cuts
        if not isinstance(ask.request, Fetch) or says_something(answer, ask.request):
            what = "the answer is lost" if lost else show_answer(answer)
            self.told.append(f"{sender} > {ask.to} {show_request(ask.request)}: {what}")
        asking = self.nodes[sender].machine
        if asking is not None and not lost:
            asking.on_answer(ask.to, ask.request, answer, self.now_ms)
        self.settle()

    def unanswered(self, sender: int, ask: Ask) -> None:
        asking = self.nodes[sender].machine
        if asking is not None:
            asking.on_unanswered(ask.to, ask.request, self.now_ms)
        self.settle()


def deliver(quorum: Quorum, ask: Ask, now_ms: int) -> Answer:
    match ask.request:
        case Vote():
            return quorum.on_vote(ask.request, now_ms)
        case BeginEpoch():
            return quorum.on_begin_epoch(ask.request, now_ms)
        case EndEpoch():
            return quorum.on_end_epoch(ask.request, now_ms)
        case Fetch():
            return quorum.on_fetch(ask.request, now_ms)
    return quorum.on_fetch_snapshot(ask.request, now_ms)


def says_something(answer: Any, request: Fetch) -> bool:
    if answer.error or answer.records or answer.diverging or answer.snapshot:
        return True
    return bool(answer.high_watermark > request.high_watermark)


def show_entry(entry: Entry) -> str:
    if isinstance(entry.value, Voters):
        return f"voters-{'-'.join(map(str, entry.value.ids))}"
    return str(entry.value).replace(" ", "-")


def show_request(request: object) -> str:
    match request:
        case Vote():
            kind = "would you vote for me" if request.pre_vote else "vote for me"
            return f"{kind} in epoch {request.epoch}, log {request.end_offset}@{request.last_epoch}"
        case BeginEpoch():
            return f"{request.leader} leads epoch {request.epoch}"
        case EndEpoch():
            successors = " ".join(str(each.node_id) for each in request.candidates)
            return f"{request.leader} no longer leads epoch {request.epoch}, next {successors}"
        case Fetch():
            return f"fetch in epoch {request.epoch}, log {request.offset}@{request.last_epoch}"
        case FetchSnapshot(snapshot=end):
            return f"snapshot {end.end_offset}@{end.epoch} from position {request.position}"
    raise ValueError(request)


def show_answer(answer: object) -> str:
    match answer:
        case VoteAnswer():
            return f"{answer.error.name} " * bool(answer.error) + f"{'yes' if answer.granted else 'no'}" + known(answer)
        case EpochAnswer():
            return (answer.error.name if answer.error else "ok") + known(answer)
        case FetchAnswer(error=error) | SnapshotAnswer(error=error) if error:
            return error.name + known(answer)
        case FetchAnswer(diverging=end) if end is not None:
            return f"diverging, epoch {end.epoch} ends at {end.end_offset} here"
        case FetchAnswer(snapshot=end) if end is not None:
            return f"no longer in the log, fetch the snapshot {end.end_offset}@{end.epoch}"
        case SnapshotAnswer():
            return f"{answer.position + len(answer.data)} of {answer.size}"
        case FetchAnswer():
            found: Any = answer.records
            records = " ".join(map(show_entry, found[1])) if found else "no records"
            return f"{records}, {answer.high_watermark} committed"
    raise ValueError(answer)


def known(answer: Answer) -> str:
    leader = "no leader" if answer.leader < 0 else f"leader {answer.leader}"
    return f" (epoch {answer.epoch}, {leader})"
