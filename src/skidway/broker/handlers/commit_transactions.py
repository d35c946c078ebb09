"""CommitTransactions (key 30000), v0: the open transactions of several transactional ids are committed, all or none.

Skidway's own; Kafka has nothing like it. One coordinator has to keep all of the ids: who asks chooses names that fall
into one partition of `__transaction_state`. Answered when it is committed, with the epochs of the next transactions;
asked again with the same epochs it is answered the same. A refusal is that of the first id that cannot be committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.errors import ErrorCode, InvalidRequest, ProtocolError
from skidway.steps import Steps
from skidway.transactions.operations import CommitTogether, Participant, Producer
from skidway.transactions.together import check_participants
from skidway.wire.schema.commit_transactions import (
    CommittedTransaction,
    CommitTransactionsRequest,
    CommitTransactionsResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: CommitTransactionsRequest) -> Steps[CommitTransactionsResponse | None]:
    asked = CommitTogether([])
    places = set()
    for each in request.transactions:
        asked.participants.append(Participant(each.transactional_id, each.producer_id, each.producer_epoch))
        places.add(node.transactions.place_of(each.transactional_id))
        yield None
    try:
        check_participants(asked.participants)
        if len(places) > 1:
            raise InvalidRequest(f"the ids belong to {len(places)} coordinators: name them so that one keeps all")
    except InvalidRequest as error:
        return _refused(error)

    def answer(reply: list[Producer] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(_refused(reply))
        else:
            answer_later(node.world.slices, call, _response(asked.participants, reply))

    node.transactions.submit(asked.participants[0].transactional_id, asked, call.now_ms, answer)
    return None


def _refused(error: ProtocolError) -> CommitTransactionsResponse:
    return CommitTransactionsResponse(error_code=error.code, error_message=error.message)


def _response(participants: list[Participant], producers: list[Producer]) -> Steps[CommitTransactionsResponse]:
    response = CommitTransactionsResponse(error_code=ErrorCode.NONE)
    for each, producer in zip(participants, producers, strict=True):
        response.transactions.append(CommittedTransaction(each.transactional_id, producer.id, producer.epoch))
        yield None
    return response
