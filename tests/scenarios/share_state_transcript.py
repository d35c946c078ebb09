"""A share coordinator driven by lines of text, for transcripts.

    init TOPIC:PARTITION epoch=N [start=N]
    read TOPIC:PARTITION leader=N
    write TOPIC:PARTITION epoch=N leader=N [start=N] [done=N] [FIRST-LAST:STATExCOUNT ...]
    delete TOPIC:PARTITION, summary TOPIC:PARTITION
    gone TOPIC                     the topic was deleted
    wait MS                        time passes, ticks included
    hold, release                  nothing is committed; everything is again
    restart                        a new machine from the log

The group is `g` unless `group=` says otherwise. Answers come first, then `+ record` for each record written, with its
offset, and `cut below OFFSET` where the log was pruned.
"""

from typing import Any

from share_coordinator_world import World, topic_id

from skidway.errors import ErrorCode, ProtocolError
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import (
    Ask,
    Delete,
    Done,
    Initialize,
    Question,
    Read,
    ReadSummary,
    State,
    Summary,
    TopicsChanged,
    Write,
)
from skidway.shares.coordinator.records import ShareRecord
from skidway.shares.coordinator.settings import ShareCoordinatorSettings
from skidway.shares.coordinator.state import Snapshot, Update


class Transcript:
    def __init__(self, settings: ShareCoordinatorSettings) -> None:
        self.world = World(settings, ("x", "y"))
        self.lines: list[str] = []

    def run(self, line: str) -> str:
        self.lines = []
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        getattr(self, f"_{verb}")([word for word in words if "=" not in word], options)
        self.lines += [f"+ {record.offset} {_shown(record)}" for record in self.world.written]
        self.lines += [f"cut below {offset}" for offset in self.world.pruned]
        self.world.written.clear()
        self.world.pruned.clear()
        return "\n".join(self.lines) or "nothing"

    def _ask(self, question: Question) -> None:
        def answer(reply: Any) -> None:
            answers = [reply] if isinstance(reply, ProtocolError) else reply
            self.lines += [_answer(each) for each in answers]

        self.world.submit(Ask([question]), answer)

    def _init(self, names: list[str], options: dict[str, str]) -> None:
        self._ask(Initialize(_key(names, options), int(options["epoch"]), int(options.get("start", -1))))

    def _read(self, names: list[str], options: dict[str, str]) -> None:
        self._ask(Read(_key(names, options), int(options["leader"])))

    def _write(self, names: list[str], options: dict[str, str]) -> None:
        epochs = int(options["epoch"]), int(options["leader"])
        offsets = int(options.get("start", -1)), int(options.get("done", -1))
        self._ask(Write(_key(names, options), *epochs, *offsets, [_batch(word) for word in names[1:]]))

    def _delete(self, names: list[str], options: dict[str, str]) -> None:
        self._ask(Delete(_key(names, options)))

    def _summary(self, names: list[str], options: dict[str, str]) -> None:
        self._ask(ReadSummary(_key(names, options)))

    def _gone(self, names: list[str], options: dict[str, str]) -> None:
        self.world.topics -= set(names)
        self.world.submit(TopicsChanged(names))
        self.world.pass_time(0)

    def _wait(self, names: list[str], options: dict[str, str]) -> None:
        self.world.pass_time(int(names[0]))

    def _hold(self, names: list[str], options: dict[str, str]) -> None:
        self.world.held_back = True

    def _release(self, names: list[str], options: dict[str, str]) -> None:
        self.world.release()

    def _restart(self, names: list[str], options: dict[str, str]) -> None:
        self.world.restart()


def _key(names: list[str], options: dict[str, str]) -> ShareKey:
    topic, _, partition = names[0].partition(":")
    return ShareKey(options.get("group", "g"), topic_id(topic), int(partition))


def _batch(word: str) -> StateBatch:
    offsets, _, rest = word.partition(":")
    first, _, last = offsets.partition("-")
    state, _, count = rest.partition("x")
    return StateBatch(int(first), int(last or first), int(state), int(count))


def _batches(batches: Any) -> str:
    return " ".join(f"{each.first}-{each.last}:{each.state}x{each.delivery_count}" for each in batches) or "nothing"


def _answer(reply: Any) -> str:
    match reply:
        case Done():
            return "done"
        case State():
            return f"state epoch {reply.state_epoch}, start {reply.start_offset}, {_batches(reply.batches)}"
        case Summary():
            epochs = f"state epoch {reply.state_epoch}, leader epoch {reply.leader_epoch}"
            return f"{epochs}, start {reply.start_offset}, done {reply.complete_count}"
    return f"{ErrorCode(reply.code).name} {reply.message or ''}".strip()


def _shown(record: ShareRecord) -> str:
    key = f"{record.key.topic_id.decode().rstrip('.')}:{record.key.partition}"
    match record.value:
        case None:
            return f"{key} gone"
        case Update() as update:
            return (
                f"{key} update of {update.snapshot_epoch}: leader {update.leader_epoch}, start {update.start_offset}, "
                f"done {update.complete_count}, {_batches(update.batches)}"
            )
        case Snapshot() as snapshot:
            return (
                f"{key} snapshot {snapshot.snapshot_epoch}: epoch {snapshot.state_epoch}, leader "
                f"{snapshot.leader_epoch}, start {snapshot.start_offset}, done {snapshot.complete_count}, "
                f"{_batches(snapshot.batches)}"
            )
