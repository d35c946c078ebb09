"""CommitTransactions: several transactional ids at one coordinator, all of them committed or none."""

from typing import Any

from broker_world import part
from transactions_world import Transactions

from skidway.errors import ErrorCode
from skidway.groups.placement import partition_of
from skidway.transactions.transaction import Ended, Ending, Ongoing

STATE_PARTITIONS = 4


def ids(count: int, place: int = 1) -> list[str]:
    """Ids that one coordinator keeps."""
    names = (f"task-{number}" for number in range(1_000))
    return [name for name in names if partition_of(name, STATE_PARTITIONS) == place][:count]


def begin(world: Transactions, key: str, *places: tuple[str, int]) -> tuple[int, int]:
    reply = world.init(key)
    producer = (reply.producer_id, reply.producer_epoch)
    assert reply.error_code == 0
    if places:
        assert set(world.add(producer, *places, key=key).values()) == {0}
    return producer


def commit(world: Transactions, producers: dict[str, tuple[int, int]]) -> Any:
    asked = [part("CommitTransactions", "TransactionToCommit", key, *producer) for key, producer in producers.items()]
    return world.peer.call("CommitTransactions", transactions=asked)


def test_all_are_committed_and_hear_their_next_epochs() -> None:
    world = Transactions()
    producers = {key: begin(world, key, ("t", 0), ("t", number)) for number, key in enumerate(ids(3))}
    reply = commit(world, producers)
    assert (reply.error_code, reply.error_message) == (0, None)
    said = {each.transactional_id: (each.producer_id, each.producer_epoch) for each in reply.transactions}
    assert said == {key: (producer_id, epoch + 1) for key, (producer_id, epoch) in producers.items()}
    for key in producers:
        assert isinstance(world.state(key).state, Ending | Ended)
        assert world.state(key).state.commit
    again = commit(world, producers)
    assert again.error_code == 0
    assert again.transactions == reply.transactions


def test_one_that_cannot_be_committed_holds_up_all() -> None:
    world = Transactions()
    first, second = ids(2)
    producers = {first: begin(world, first, ("t", 0)), second: begin(world, second)}
    reply = commit(world, producers)
    assert reply.error_code == ErrorCode.INVALID_TXN_STATE
    assert second in reply.error_message
    assert reply.transactions == []
    assert isinstance(world.state(first).state, Ongoing)
    producer_id, epoch = producers[first]
    assert commit(world, {first: (producer_id, epoch + 1)}).error_code == ErrorCode.PRODUCER_FENCED
    assert commit(world, {first: (producer_id + 7, epoch)}).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert isinstance(world.state(first).state, Ongoing)


def test_ids_of_two_coordinators_are_refused() -> None:
    world = Transactions()
    here, elsewhere = ids(1, place=1)[0], ids(1, place=2)[0]
    producers = {key: begin(world, key, ("t", 0)) for key in (here, elsewhere)}
    reply = commit(world, producers)
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert "2 coordinators" in reply.error_message
    assert isinstance(world.state(here).state, Ongoing)
    assert isinstance(world.state(elsewhere).state, Ongoing)


def test_bounds() -> None:
    world = Transactions()
    assert commit(world, {}).error_code == ErrorCode.INVALID_REQUEST
    reply = commit(world, dict.fromkeys((f"many-{number}" for number in range(1001)), (1, 0)))
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert "1001" in reply.error_message
