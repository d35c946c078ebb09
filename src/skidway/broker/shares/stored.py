"""The share coordinators as the store of share-partitions: the same facts, in their words."""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.coordinators.share_states import ShareStates
from skidway.broker.shares.share_partition import Key
from skidway.errors import InvalidRequest, ProtocolError
from skidway.shares.coordinator import batches as stored_batches
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import Done, State
from skidway.shares.durable import Durable
from skidway.shares.letter_notes import NO_NOTES
from skidway.shares.queue_groups import topic_of
from skidway.shares.records import StateBatch, Stored, Update
from skidway.shares.terms import NO_TERMS

FIRST_STATE_EPOCH = 0


class CoordinatorStore:
    __slots__ = ("_states",)

    def __init__(self, states: ShareStates) -> None:
        self._states = states

    def load(self, key: Key, leader_epoch: int, now_ms: int, respond: Callable[[Stored | ProtocolError], None]) -> None:
        def answer(state: State | ProtocolError) -> None:
            respond(state if isinstance(state, ProtocolError) else _stored(state))

        if topic_of(key.group_id) is None:
            self._states.read(_key(key), leader_epoch, now_ms, answer)
        else:
            self._load_queue(_key(key), leader_epoch, now_ms, answer)

    def _load_queue(
        self, key: ShareKey, leader_epoch: int, now_ms: int, answer: Callable[[State | ProtocolError], None]
    ) -> None:
        """A queue has no group that would have its state made; it begins with the first message there ever was. Who
        makes one that is there already changes nothing."""

        def made(done: Done | ProtocolError) -> None:
            if isinstance(done, ProtocolError):
                answer(done)
            else:
                self._states.read(key, leader_epoch, now_ms, answer)

        def found(state: State | ProtocolError) -> None:
            if isinstance(state, InvalidRequest):
                self._states.initialize(key, FIRST_STATE_EPOCH, 0, now_ms, made)
            else:
                answer(state)

        self._states.read(key, leader_epoch, now_ms, found)

    def begin_anew(
        self,
        key: Key,
        leader_epoch: int,
        stored: Stored,
        now_ms: int,
        respond: Callable[[ProtocolError | None], None],
    ) -> None:
        kept = Update(stored.start_offset, Durable(stored).complete_count, stored.batches, stored.letters, stored.terms)

        def made(done: Done | ProtocolError) -> None:
            if isinstance(done, ProtocolError):
                respond(done)
            else:
                self.write(key, stored.state_epoch, leader_epoch, kept, now_ms, respond)

        self._states.initialize(_key(key), stored.state_epoch, stored.start_offset, now_ms, made)

    def write(
        self,
        key: Key,
        state_epoch: int,
        leader_epoch: int,
        update: Update,
        now_ms: int,
        respond: Callable[[ProtocolError | None], None],
    ) -> None:
        def answer(done: Done | ProtocolError) -> None:
            respond(done if isinstance(done, ProtocolError) else None)

        batches = [
            stored_batches.StateBatch(each.first, each.end - 1, stored_batches.DeliveryState(each.state), each.count)
            for each in update.batches
        ]
        start, complete_count = update.start_offset, update.complete_count
        letters, terms = update.letters or NO_NOTES, update.terms or NO_TERMS
        self._states.write(
            _key(key), state_epoch, leader_epoch, start, complete_count, batches, now_ms, answer, letters, terms
        )


def _key(key: Key) -> ShareKey:
    return ShareKey(key.group_id, key.topic_id, key.partition)


def _stored(state: State) -> Stored:
    batches = [StateBatch(*each[:2], each[2], each[3]) for each in state.batches]
    for batch in batches:
        batch.end += 1
    return Stored(state.state_epoch, state.start_offset, batches, state.letters, state.terms)
