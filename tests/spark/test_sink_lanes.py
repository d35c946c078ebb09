"""When the next batch of a partition may go: the rules that keep batches in order and known to the broker."""

from skidway.blocking_client.addresses import Address
from skidway.spark.sink.lanes import RETRY_PAUSE_S, Lane, Outgoing

HERE, THERE = Address("here", 1), Address("there", 2)
LATER = 1_000.0


def lane_with(count: int, *, opened: bool = True) -> Lane:
    lane = Lane("t", 0, opened=opened)
    lane.waiting.extend(Outgoing(b"%d" % number, 1, LATER) for number in range(count))
    return lane


def queued(lane: Lane) -> list[bytes]:
    return [bytes(one.batch) for one in lane.waiting]


def test_batches_follow_each_other_on_one_connection() -> None:
    lane = lane_with(3)
    lane.launch(HERE)
    assert lane.ready(HERE, now=0.0)
    assert not lane.ready(THERE, now=0.0), "what went here must be answered before anything goes there"
    lane.flying.popleft()
    assert lane.ready(THERE, now=0.0)


def test_the_first_batch_of_a_producer_goes_alone() -> None:
    lane = lane_with(2, opened=False)
    assert lane.ready(HERE, now=0.0)
    lane.launch(HERE)
    assert not lane.ready(HERE, now=0.0)
    lane.flying.popleft()
    lane.on_stored()
    assert lane.ready(HERE, now=0.0)


def test_refused_batches_wait_for_those_on_their_way_and_keep_their_order() -> None:
    lane = lane_with(5)
    for _ in range(3):
        lane.launch(HERE)
    lane.refuse(lane.flying.popleft(), "no")
    lane.settle(now=0.0)
    assert not lane.ready(HERE, now=LATER), "two are still on their way"
    lane.flying.popleft()  # The second was stored all the same.
    lane.refuse(lane.flying.popleft(), "no")
    oldest = lane.oldest()
    assert oldest is not None
    assert oldest.batch == b"0"
    lane.settle(now=0.0)
    assert queued(lane) == [b"0", b"2", b"3", b"4"]


def test_a_batch_that_goes_again_goes_alone() -> None:
    lane = lane_with(3)
    lane.refuse(lane.launch(HERE), "no")
    lane.flying.clear()
    lane.settle(now=0.0)
    lane.launch(HERE)
    assert not lane.ready(HERE, now=LATER), "it is on its way again"
    lane.flying.popleft()
    lane.launch(HERE)
    assert lane.ready(HERE, now=LATER), "new ones follow each other as before"
    lane.waiting[0].again = True
    assert not lane.ready(HERE, now=LATER), "the next one has been on its way before"


def test_pauses_grow_until_something_is_stored() -> None:
    lane = lane_with(1)
    pauses = []
    for _ in range(8):
        lane.rest(now=0.0)
        assert not lane.ready(HERE, now=lane.retry_at - 0.001)
        assert lane.ready(HERE, now=lane.retry_at)
        pauses.append(lane.retry_at)
    assert pauses[:4] == [RETRY_PAUSE_S * factor for factor in (1, 2, 4, 8)]
    assert pauses[-1] == pauses[-2] == 0.5
    lane.on_stored()
    lane.rest(now=0.0)
    assert lane.retry_at == RETRY_PAUSE_S
