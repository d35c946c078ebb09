"""ListTransactions (key 66), v0–v2: the transactional ids that this broker coordinates.

By state and by producer id; from v1 on by how long ago the transaction began; from v2 on by a regular expression that
the whole id has to match. A state that there is not is told, and is no error. While any of this broker's coordinators
is loaded there is no answer: a list that lacks some would be taken for whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.errors import ErrorCode, InvalidRegularExpression, ProtocolError
from skidway.groups.consumer.patterns import WORK_MAX, Pattern
from skidway.steps import Steps
from skidway.transactions.operations import Description, ListTransactions
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
FILTERS_MAX = 10_000
"""Producer ids and states named in one request."""
NONE_OF_THEM = "-"
"""A state that no transaction has."""


def handle(node: Services, call: Call, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse | None]:
    if max(len(request.state_filters), len(request.producer_id_filters)) > FILTERS_MAX:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        matches = _Matches(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except InvalidRegularExpression as error:
        return ListTransactionsResponse(error_code=error.code)
    unknown = [name for name in request.state_filters if name not in STATES]
    states = frozenset(request.state_filters) & STATES
    if unknown and not states:
        states = frozenset([NONE_OF_THEM])
    producer_ids = frozenset(request.producer_id_filters)

    def answer(replies: list[list[Description] | ProtocolError]) -> None:
        too_slow = matches is not None and matches.gave_up
        answer_later(node.world.slices, call, _response(unknown, replies, too_slow=too_slow))

    yield from node.transactions.submit_to_all(
        lambda: ListTransactions(states, producer_ids, request.duration_filter, matches), call.now_ms, answer
    )
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


def _response(
    unknown: list[str], replies: list[list[Description] | ProtocolError], *, too_slow: bool
) -> Steps[ListTransactionsResponse]:
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    refused = [reply.code for reply in replies if isinstance(reply, ProtocolError)]
    if refused or too_slow:
        response.error_code = refused[0] if refused else InvalidRegularExpression.code
        return response
    for reply in replies:
        assert not isinstance(reply, ProtocolError)
        for one in reply:
            response.transaction_states.append(TransactionState(one.transactional_id, one.producer_id, one.state))
            yield None
    return response
