"""ListTransactions (key 66), v0–v2: the transactional ids that this broker coordinates.

By state and by producer id; from v1 on by how long ago the transaction began; from v2 on by a regular expression that
the whole id has to match (an id with a character outside of ASCII matches none). A state that there is not is told,
and is no error. While any of this broker's coordinators is loaded there is no answer: a list that lacks some would be
taken for whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.api.in_parts import PART_ITEMS
from skidway.errors import (
    CoordinatorLoadInProgress,
    ErrorCode,
    InvalidRegularExpression,
    NotCoordinator,
    ProtocolError,
)
from skidway.groups.consumer.patterns import WORK_MAX, Pattern
from skidway.steps import Question, Steps
from skidway.transactions.operations import Description, ListIds, ListTransactions
from skidway.transactions.records import NAMES
from skidway.wire.schema.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

STATES = frozenset(NAMES.values())
PASSING = frozenset(["Dead", "PrepareEpochFence"])
"""Kafka's names of states that an id has for a moment there, and never here."""
FILTERS_MAX = 10_000
"""Producer ids and states named in one request."""


def handle(node: Services, call: Call, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse | None]:
    if max(len(request.state_filters), len(request.producer_id_filters)) > FILTERS_MAX:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        matches = _Matches(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except InvalidRegularExpression as error:
        return ListTransactionsResponse(error_code=error.code)
    states = frozenset(request.state_filters)
    unknown = sorted(states - STATES - PASSING)
    producer_ids, longer_than_ms = frozenset(request.producer_id_filters), request.duration_filter

    def answer(replies: list[list[str] | ProtocolError]) -> None:
        found = _found(node, replies, lambda ids: ListTransactions(ids, states, producer_ids, longer_than_ms, matches))
        answer_later(node.world.slices, call, _response(unknown, matches, found))

    yield from node.transactions.submit_to_all(ListIds, call.now_ms, answer)
    return None


class _Matches:
    """Of one pattern; gives up on one that costs too much, and then takes nothing."""

    __slots__ = ("_pattern",)

    def __init__(self, text: str) -> None:
        self._pattern = Pattern(text)

    @property
    def gave_up(self) -> bool:
        return self._pattern.work > WORK_MAX

    def __call__(self, key: str) -> bool:
        return not self.gave_up and self._pattern.matches(key)


def _found(
    node: Services,
    replies: list[list[str] | ProtocolError],
    make: Callable[[list[str]], ListTransactions],
) -> Steps[list[TransactionState]]:
    """What coordinators say of their ids, some at a time: there may be a hundred thousand of each."""
    found: list[TransactionState] = []
    for ids in replies:
        if isinstance(ids, ProtocolError):
            raise ids
        for at in range(0, len(ids), PART_ITEMS):
            some = ids[at : at + PART_ITEMS]
            reply = yield Question(partial(_ask, node, some[0], make(some)))
            if isinstance(reply, ProtocolError):
                raise reply
            found += [TransactionState(one.transactional_id, one.producer_id, one.state) for one in reply]
            yield None
    return found


def _ask(
    node: Services,
    key: str,
    operation: ListTransactions,
    answer: Callable[[list[Description] | ProtocolError], None],
) -> None:
    node.transactions.submit(key, operation, node.world.clock.monotonic_ms(), answer)


def _response(
    unknown: list[str], matches: _Matches | None, finding: Steps[list[TransactionState]]
) -> Steps[ListTransactionsResponse]:
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        found = yield from finding
    except NotCoordinator:
        # It has moved while the list was made. Clients know this code of the API, and ask again.
        response.error_code = CoordinatorLoadInProgress.code
    except ProtocolError as error:
        response.error_code = error.code
    else:
        if matches is not None and matches.gave_up:
            response.error_code = InvalidRegularExpression.code
        else:
            response.transaction_states = found
    return response
