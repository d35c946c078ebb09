"""A transaction coordinator driven by lines of text, for transcripts.

    init NAME [as=PID/EPOCH|again] [timeout=MS]    again: with what NAME was told last
    add NAME TOPIC:PARTITION ...                   a client's AddPartitionsToTxn; `bumping` from a broker, for a client
                                                   whose epoch grows at every end
    verify NAME TOPIC:PARTITION ...
    commit NAME, abort NAME                        with what NAME was told last; `old`: with what it was told before
    together NAME:ID ... [old]                     all their transactions are committed, or none
    marked [TOPIC:PARTITION ...]                   partitions answer that they have their marker; none named: all
    late                                           the same about the transaction before
    gone TOPIC ...                                 the topics were deleted
    describe, list [STATE ...] [longer=MS]
    wait MS                                        time passes, ticks included
    hold, release                                  nothing is committed; everything is again
    restart                                        a new machine from the log; who waits is told
    refuse                                         the next append fails
    epoch N                                        as if `t` had come to this epoch; with a restart
    short, more                                    there are no producer ids; there are again

`bumping` makes it a client whose epoch grows at every end. NAME is a producer; all share the transactional id `t`
unless `id=ID` says otherwise. What happens is told as `NAME verb: answer`, then `+ record` for each record written and
`> effect` for each effect that is performed.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from transaction_world import WALL_AT_START_MS, World

from skidway.errors import ErrorCode, ProtocolError
from skidway.runtime.replicated import Operation
from skidway.transactions.operations import (
    AddPartitions,
    CommitTogether,
    DescribeTransaction,
    Description,
    EndTransaction,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    Participant,
    Producer,
    TopicsDeleted,
    VerifyPartitions,
    WriteMarkers,
)
from skidway.transactions.records import NAMES, TransactionRecord, status_of
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import NO_PRODUCER, Place, Transaction


class Transcript:
    def __init__(self, settings: TransactionSettings) -> None:
        self.world = World(settings)
        self.told: dict[str, Producer] = {}
        self.before: dict[str, Producer] = {}
        self.sent: list[WriteMarkers] = []
        self.lines: list[str] = []

    def run(self, line: str) -> str:
        self.lines = []
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        getattr(self, f"_{verb}")(names, options)
        self.lines += [f"+ {_shown(record)}" for record in self.world.written]
        self.lines += [f"> {_marker(effect)}" for effect in self.world.performed]
        self.sent += self.world.performed
        self.world.written.clear()
        self.world.performed.clear()
        return "\n".join(self.lines) or "nothing"

    def _submit(self, who: str, verb: str, operation: Operation[Any]) -> None:
        def answer(reply: Any) -> None:
            if isinstance(reply, Producer):
                if self.told.get(who, reply) != reply:
                    self.before[who] = self.told[who]
                self.told[who] = reply
            self.lines.append(f"{who} {verb}: {_answer(reply)}".strip())

        self.world.submit(operation, answer)

    def _init(self, names: list[str], options: dict[str, str]) -> None:
        who = names[0]
        producer = Producer(NO_PRODUCER, -1)
        if "again" in names:
            producer = self.told[who]
        if "old" in names:
            producer = self.before[who]
        if "as" in options:
            producer = Producer(*(int(part) for part in options["as"].split("/")))
        timeout_ms = int(options.get("timeout", 60_000))
        self._submit(who, "init", InitProducer(options.get("id", "t"), timeout_ms, producer.id, producer.epoch))

    def _add(self, names: list[str], options: dict[str, str]) -> None:
        who, *rest = names
        producer = self._producer(who, rest)
        bumps = "bumping" in rest
        operation = AddPartitions(options.get("id", "t"), producer.id, producer.epoch, _places(rest), bumps)
        self._submit(who, "add", operation)

    def _verify(self, names: list[str], options: dict[str, str]) -> None:
        who, *rest = names
        producer = self._producer(who, rest)
        self._submit(
            who, "verify", VerifyPartitions(options.get("id", "t"), producer.id, producer.epoch, _places(rest))
        )

    def _commit(self, names: list[str], options: dict[str, str]) -> None:
        self._end(names, options, commit=True)

    def _abort(self, names: list[str], options: dict[str, str]) -> None:
        self._end(names, options, commit=False)

    def _end(self, names: list[str], options: dict[str, str], *, commit: bool) -> None:
        who, *rest = names
        producer = self._producer(who, rest)
        operation = EndTransaction(options.get("id", "t"), producer.id, producer.epoch, commit, "bumping" in rest)
        self._submit(who, "commit" if commit else "abort", operation)

    def _together(self, names: list[str], options: dict[str, str]) -> None:
        pairs = [name.split(":") for name in names if ":" in name]
        said = [(key, self._producer(who, names)) for who, key in pairs]
        asked = CommitTogether([Participant(key, producer.id, producer.epoch) for key, producer in said])

        def answer(reply: Any) -> None:
            for (who, _), producer in zip(pairs, reply if isinstance(reply, list) else [], strict=False):
                if self.told[who] != producer:
                    self.before[who], self.told[who] = self.told[who], producer
            self.lines.append(f"together: {_answer(reply)}")

        self.world.submit(asked, answer)

    def _producer(self, who: str, words: list[str]) -> Producer:
        return self.before[who] if "old" in words else self.told[who]

    def _marked(self, names: list[str], options: dict[str, str]) -> None:
        self._answer_markers(self.sent[-1], names)

    def _late(self, names: list[str], options: dict[str, str]) -> None:
        self._answer_markers(self.sent[-2], names)

    def _answer_markers(self, effect: WriteMarkers, names: list[str]) -> None:
        places = _places(names) if names else sorted(effect.places)
        written = MarkersWritten(effect.transactional_id, effect.number, places)
        self.world.submit(written)

    def _gone(self, names: list[str], options: dict[str, str]) -> None:
        self.world.submit(TopicsDeleted(names))

    def _describe(self, names: list[str], options: dict[str, str]) -> None:
        self._submit("", "t", DescribeTransaction(options.get("id", "t")))

    def _list(self, names: list[str], options: dict[str, str]) -> None:
        longer_ms = int(options.get("longer", -1))
        self._submit("", "list", ListTransactions(states=frozenset(names), running_longer_than_ms=longer_ms))

    def _wait(self, names: list[str], options: dict[str, str]) -> None:
        self.world.pass_time(int(names[0]))

    def _hold(self, names: list[str], options: dict[str, str]) -> None:
        self.world.held_back = True

    def _release(self, names: list[str], options: dict[str, str]) -> None:
        self.world.release()

    def _restart(self, names: list[str], options: dict[str, str]) -> None:
        self.world.restart()

    def _refuse(self, names: list[str], options: dict[str, str]) -> None:
        self.world.refusing = True

    def _epoch(self, names: list[str], options: dict[str, str]) -> None:
        transaction = replace(self.world.machine.transactions["t"], epoch=int(names[0]))
        self.world.append([TransactionRecord("t", transaction)], self.world.now_ms)
        self.world.restart()
        for who, producer in self.told.items():
            self.told[who] = Producer(producer.id, transaction.epoch)

    def _short(self, names: list[str], options: dict[str, str]) -> None:
        self.world.short = True

    def _more(self, names: list[str], options: dict[str, str]) -> None:
        self.world.short = False


def _places(words: list[str]) -> list[Place]:
    pairs = [word.rsplit(":", 1) for word in words if ":" in word]
    return [(topic, int(partition)) for topic, partition in pairs]


def _named(places: Sequence[Place] | frozenset[Place]) -> str:
    return " ".join(f"{topic}:{partition}" for topic, partition in sorted(places))


def _answer(reply: Any) -> str:
    match reply:
        case ProtocolError():
            return f"{reply.code.name} {reply.message or ''}".strip()
        case Producer(producer_id, epoch):
            return f"{producer_id}/{epoch}"
        case Description():
            return _description(reply)
        case None:
            return "ok"
        case list():
            return "; ".join(
                _answer(each) if isinstance(each, Description | Producer) else ErrorCode(each).name for each in reply
            )
    raise AssertionError(reply)


def _description(described: Description) -> str:
    who = f"{described.transactional_id} {described.producer_id}/{described.epoch} {described.state}"
    started = "" if described.started_ms < 0 else f" since {described.started_ms - WALL_AT_START_MS}"
    return f"{who}{started} {_named(described.places)}".strip()


def _shown(record: TransactionRecord) -> str:
    transaction: Transaction | None = record.transaction
    if transaction is None:
        return f"{record.id} forgotten"
    line = f"{record.id} {transaction.producer_id}/{transaction.epoch} {NAMES[status_of(transaction.state)]}"
    if transaction.places:
        line += f" {_named(transaction.places)}"
    if transaction.next_producer_id != NO_PRODUCER:
        line += f" next={transaction.next_producer_id}"
    if transaction.previous_producer_id != transaction.producer_id:
        line += f" previous={transaction.previous_producer_id}"
    return line


def _marker(effect: WriteMarkers) -> str:
    kind = "commit" if effect.commit else "abort"
    form = "bumped" if effect.bumps else "steady"
    return f"{form} {kind} marker of {effect.producer_id}/{effect.epoch} for {_named(effect.places)}"
