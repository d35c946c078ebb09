"""What members of share groups were told, and whether it can all be true.

| law | meaning |
|---|---|
| settled-again | a record was delivered after its acceptance or rejection was answered |
| two-holders | two members had a record at once, or one settled what was another's |
| delivery-counts | a count was given twice by one leader, fell, or passed the limit |
| lock-times | a lock ended early, or was honoured when it was over |
| answered-acks | an acknowledgement was answered, and is not stored |
| torn-acks | of an acknowledgement that was refused a part took effect, or one that names an offset twice was taken |
| old-epochs | a leader that had been replaced took an acknowledgement, or one delivers that has not fenced the others |
| share-sessions | a session ended by itself, or a request with another epoch was taken |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from skidway.errors import ErrorCode
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.states import ACKNOWLEDGED, ARCHIVED, Verb
from skidway.sim.clients.share_holds import Hold, Place, Spoken
from skidway.sim.laws.history import History
from skidway.sim.laws.share_keys import ShareKeyLaws
from skidway.sim.laws.share_states import ShareStateLaws
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import MS, Violation, World

FAST, SLOW = 0.94, 1.06
"""Clocks run that much apart at most."""
SLACK_US = 10 * MS
HOLDS_KEPT = 8
"""Of an offset: the others are over."""

Reign = tuple[int, int]
REFUSED = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)


@dataclass(slots=True, frozen=True)
class Settled:
    """The end of a record, which was answered."""

    count: int
    at_us: int
    reign: Reign | None
    """Of the leader that had delivered it."""

    def is_before(self, hold: Hold) -> bool:
        """Leaders count by themselves what is not stored yet: only of the same one is a higher number a later one."""
        return hold.sent_us > self.at_us or (hold.count > self.count and hold.reign == self.reign is not None)


@dataclass(slots=True)
class Told:
    """All that is known of one share-partition."""

    settled: dict[int, Settled] = field(default_factory=dict)
    said: dict[int, dict[int, int]] = field(default_factory=dict)
    """By offset: how often who said which final word, and was not refused."""
    holds: dict[int, list[Hold]] = field(default_factory=dict)
    given: dict[tuple[Reign, int], set[int]] = field(default_factory=dict)
    """Counts that a leader has told, by offset."""
    unsure: bool = False
    """Of some acknowledgement nobody knows what became of it."""
    counts: dict[int, int] = field(default_factory=dict)
    """The highest that any leader has given."""


class ShareLaws:
    def __init__(self, world: World, cluster: Cluster, history: History, limit: int) -> None:
        self.world = world
        self.cluster = cluster
        self.history = history
        self.limit = limit
        self.states = ShareStateLaws(world, cluster, self)
        self.keys = ShareKeyLaws(world, self.log_start)
        self.told: dict[ShareKey, Told] = {}
        self.deliveries = 0

    def of(self, key: ShareKey) -> Told:
        found = self.told.get(key)
        if found is None:
            found = self.told[key] = Told()
        return found

    # --- what may be ---

    def may_end(self, key: ShareKey, offset: int, state: int) -> bool:
        told = self.of(key)
        said = told.said.get(offset, {})
        if state == ACKNOWLEDGED:
            return bool(said.get(Verb.ACCEPT))
        if any(said.values()) or told.counts.get(offset, 0) >= self.limit:
            return True
        return self.log_start(key) > offset

    def is_unsure(self, key: ShareKey) -> bool:
        return self.of(key).unsure

    def log_start(self, key: ShareKey) -> int:
        """What lies below is gone, or about to go."""
        return max(
            (
                partition.log.start_offset
                for _, node in self.cluster.running
                if (partition := node.partitions.get(key.topic_id, key.partition)) is not None
            ),
            default=0,
        )

    def reign(self, node_id: int, topic_id: bytes, index: int) -> Reign | None:
        """Who leads there, if it leads."""
        host = self.cluster.hosts.get(node_id)
        if host is None or host.node is None:
            return None
        partition = host.node.partitions.get(topic_id, index)
        return None if partition is None or not partition.leads else (host.life, partition.role.leader_epoch)

    def _session(self, hold: Hold) -> object:
        host = self.cluster.hosts.get(hold.node_id)
        if host is None or host.node is None:
            return None
        return host.node.rooms.services.share_fetches.sessions.open.get((hold.group, hold.member))

    def is_held(self, hold: Hold) -> bool:
        """Certainly, now."""
        return (
            not hold.over
            and self.world.now_us < hold.until_us
            and hold.reign is not None
            and hold.reign == self.reign(hold.node_id, hold.topic_id, hold.place[1])
            and hold.session is not None
            and hold.session is self._session(hold)
        )

    # --- fetches ---

    def sending(self, group: str, place: Place, topic_id: bytes, node_id: int) -> Reign | None:
        return self.reign(node_id, topic_id, place[1])

    def delivered(self, hold: Hold, values: dict[int, bytes], reign: Reign | None) -> None:
        key = _key(hold)
        told, stored = self.of(key), self.states.stored.get(key)
        self.deliveries += hold.end - hold.first
        if reign is not None and reign == self.reign(hold.node_id, hold.topic_id, hold.place[1]):
            hold.reign = reign
        hold.session = self._session(hold)
        hold.until_us = hold.sent_us + int(hold.lock_us * FAST) - SLACK_US
        what = f"{hold.place} {hold.first} to {hold.end - 1} (delivery {hold.count}) for {hold.member}"
        self.world.say(hold.member, f"got {what}")
        if hold.count > self.limit:
            raise Violation("delivery-counts", f"{what}: the limit is {self.limit}")
        if hold.reign is not None and (stored is None or stored.leader_epoch < hold.reign[1]):
            raise Violation("old-epochs", f"{what} in leader epoch {hold.reign[1]}, which fences nobody before it")
        for offset in range(hold.first, hold.end):
            value = values.get(offset)
            if value is None:
                raise Violation("phantom", f"{what}: there is no record at {offset}")
            self.history.read(hold.member, *_where(hold), offset, value)
            settled = told.settled.get(offset)
            if settled is not None and settled.is_before(hold):
                raise Violation(
                    "settled-again",
                    f"{what}: {offset} was settled in delivery {settled.count}, answered at {settled.at_us} us",
                )
            for other in told.holds.get(offset, []):
                if other.member == hold.member:
                    other.again = max(other.again, hold.count)
            if hold.reign is None:
                continue
            given = told.given.setdefault((hold.reign, offset), set())
            if hold.count in given:
                raise Violation("delivery-counts", f"{what}: this leader has given {offset} this number already")
            given.add(hold.count)
            if not self.is_held(hold):
                continue  # The answer took so long that its lock may be over, and others got it since.
            if stored is not None and hold.count < stored.count_of(offset):
                raise Violation("delivery-counts", f"{what}: {stored.count_of(offset)} is stored for {offset}")
            for other in told.holds.get(offset, []):
                if self.is_held(other) and other.reign == hold.reign:
                    raise Violation("two-holders", f"{what}: {other.member} has {offset} until {other.until_us} us")
        self.keys.delivered(key, hold, values)
        for offset in range(hold.first, hold.end):
            told.holds[offset] = [*told.holds.get(offset, [])[-HOLDS_KEPT:], hold]

    def stranger(self, group: str, place: Place, member: str) -> tuple[int, int] | None:
        for key, told in self.told.items():
            if key.group_id != group or key.partition != place[1]:
                continue
            for holds in told.holds.values():
                for hold in holds:
                    if hold.member != member and hold.place == place and self.is_held(hold):
                        return hold.first, hold.end
        return None

    # --- acknowledgements ---

    def speaking(self, spoken: Spoken) -> None:
        key = ShareKey(spoken.group, spoken.topic_id, spoken.place[1])
        told, stored = self.of(key), self.states.stored.get(key)
        spoken.reign = self.reign(spoken.node_id, spoken.topic_id, spoken.place[1])
        spoken.stored_epoch = -1 if stored is None else stored.leader_epoch
        for offset, verb in spoken.verbs():
            if verb in (Verb.ACCEPT, Verb.REJECT):
                said = told.said.setdefault(offset, {})
                said[verb] = said.get(verb, 0) + 1
        spoken.sure = all(self.is_held(hold) for hold in spoken.holds)
        for offset, verb in spoken.verbs():
            for hold in told.holds.get(offset, []) if verb is not Verb.RENEW else []:
                hold.over |= hold.member == spoken.member

    def may_be_past(self, spoken: Spoken) -> bool:
        now = self.reign(spoken.node_id, spoken.topic_id, spoken.place[1])
        return bool(spoken.foreign) or any(hold.reign is None or hold.reign != now for hold in spoken.holds)

    def answered(self, spoken: Spoken, code: int | None) -> None:
        key = ShareKey(spoken.group, spoken.topic_id, spoken.place[1])
        name = "nothing" if code is None else ErrorCode(code).name
        self.world.say(spoken.member, f"said {_text(spoken)} of {spoken.place} and heard {name}")
        if code == ErrorCode.NONE:
            self._taken(key, spoken)
        elif code in REFUSED:
            self._refused(key, spoken, name)
        else:
            self.of(key).unsure = True
        if code is not None and code not in (ErrorCode.NONE, *REFUSED):
            self.world.mark(f"acknowledgement: {name}")

    def _taken(self, key: ShareKey, spoken: Spoken) -> None:
        told, stored, now_us = self.of(key), self.states.stored.get(key), self.world.now_us
        what = f"{spoken.member} said {_text(spoken)} of {spoken.place}, which was taken"
        if spoken.twice:
            raise Violation("torn-acks", f"{what}, though it names an offset twice")
        if stored is None:
            raise Violation("answered-acks", f"{what}, and nothing is stored")
        start = max(stored.start, self.log_start(key))
        strange = [offset for offset in spoken.foreign if offset >= start]
        if strange:
            raise Violation("two-holders", f"{what}; {strange} are another's")
        verbs = dict(spoken.verbs())
        final = [verb for offset, verb in verbs.items() if offset >= start and verb is not Verb.RENEW]
        if final and spoken.reign is not None and spoken.stored_epoch > spoken.reign[1]:
            raise Violation(
                "old-epochs", f"{what} in leader epoch {spoken.reign[1]}; {spoken.stored_epoch} had read before"
            )
        for hold in spoken.holds:
            is_late = spoken.sent_us > hold.received_us + int(hold.lock_us * SLOW) + SLACK_US
            # Where leases are stored, another leader may let one begin anew.
            is_late = is_late and not (spoken.group in self.keys.keys and spoken.reign != hold.reign)
            for offset in range(hold.first, hold.end):
                verb = verbs[offset]
                if offset < start:
                    continue
                if is_late and not hold.again:
                    raise Violation("lock-times", f"{what}; its lock of {offset} was over")
                if verb is Verb.RENEW:
                    continue
                if not _has(stored, offset, verb, hold.count):
                    raise Violation("answered-acks", f"{what}; stored for {offset} is {stored.cells.get(offset)}")
                if verb is Verb.RELEASE:
                    continue
                later = max(told.given.get((hold.reign, offset), ()), default=0) if hold.reign is not None else 0
                if later > max(hold.count, hold.again):
                    raise Violation("settled-again", f"{what}; {offset} was delivered for the {later}. time before")
                told.settled.setdefault(offset, Settled(max(hold.count, hold.again), now_us, hold.reign))
            if verbs[hold.first] is Verb.RENEW:
                hold.until_us = spoken.sent_us + int(hold.lock_us * FAST) - SLACK_US
                hold.received_us = now_us

    def _refused(self, key: ShareKey, spoken: Spoken, name: str) -> None:
        told, stored = self.of(key), self.states.stored.get(key)
        what = f"{spoken.member} said {_text(spoken)} of {spoken.place} and heard {name}"
        if spoken.is_right and spoken.sure and all(self._was_held(hold, spoken) for hold in spoken.holds):
            raise Violation("lock-times", f"{what}, though it had all of it")
        for offset, verb in spoken.verbs():
            if verb in (Verb.ACCEPT, Verb.REJECT):
                said = told.said[offset]
                said[verb] -= 1
                state = ACKNOWLEDGED if verb is Verb.ACCEPT else ARCHIVED
                if stored is not None and stored.state_of(offset) == state and not self.may_end(key, offset, state):
                    raise Violation("torn-acks", f"{what}, and {offset} is stored as {state}")

    def _was_held(self, hold: Hold, spoken: Spoken) -> bool:
        """Up to now, but for what was said."""
        hold.over = False
        try:
            return self.is_held(hold) and spoken.reign == hold.reign
        finally:
            hold.over = True

    # --- sessions ---

    def session_refused(self, who: str, node_id: int, what: str) -> None:
        raise Violation("share-sessions", f"{who} got {what} from {node_id} on the connection of its session")

    def wrong_epoch_taken(self, who: str, node_id: int, what: str) -> None:
        raise Violation("share-sessions", f"{node_id} has taken epoch {what} of {who}")


def _has(stored: object, offset: int, verb: Verb, count: int) -> bool:
    from skidway.sim.laws.share_states import Stored

    assert isinstance(stored, Stored)
    if offset < stored.start:
        return True
    if verb is Verb.ACCEPT:
        return stored.state_of(offset) == ACKNOWLEDGED
    if verb is Verb.REJECT:
        return stored.state_of(offset) == ARCHIVED
    return stored.count_of(offset) >= count


def _key(hold: Hold) -> ShareKey:
    return ShareKey(hold.group, hold.topic_id, hold.place[1])


def _where(hold: Hold) -> tuple[str, bytes, int]:
    return hold.place[0], hold.topic_id, hold.place[1]


def _text(spoken: Spoken) -> str:
    return ", ".join(f"{first}-{end - 1} {'/'.join(verb.name for verb in verbs)}" for first, end, verbs in spoken.words)
