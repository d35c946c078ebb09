"""A large message is freed a few elements at a time, and only what nothing else refers to."""

from typing import Any

from skidway.wire.release import release
from skidway.wire.schema.describe_groups import DescribeGroupsRequest
from skidway.wire.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from skidway.wire.source import STEP_ELEMENTS

ELEMENTS = 10 * STEP_ELEMENTS


class Counted:
    """Says when it is freed."""

    freed = 0

    def __del__(self) -> None:
        Counted.freed += 1


def counted_partition() -> ListOffsetsPartition:
    number: Any = Counted()
    return ListOffsetsPartition(number)


def most_in_one_step(message: Any) -> int:
    held = [message]
    del message
    Counted.freed = most = 0
    steps = release(held)
    while True:
        before = Counted.freed
        ended = next(steps, "ended") == "ended"
        most = max(most, Counted.freed - before)
        if ended:
            return most


def deep_request() -> ListOffsetsRequest:
    partitions = [counted_partition() for _ in range(ELEMENTS)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic("one", partitions)])


def test_one_long_array_is_freed_in_steps() -> None:
    names: list[Any] = [Counted() for _ in range(ELEMENTS)]
    request = DescribeGroupsRequest(groups=names)
    del names
    parts = [request]
    del request
    assert most_in_one_step(parts.pop()) <= STEP_ELEMENTS
    assert Counted.freed == ELEMENTS


def test_an_array_inside_another_is_freed_in_steps() -> None:
    assert most_in_one_step(deep_request()) <= STEP_ELEMENTS
    assert Counted.freed == ELEMENTS


def test_many_short_arrays_are_freed_in_steps() -> None:
    topics = [ListOffsetsTopic(str(number), [counted_partition()]) for number in range(ELEMENTS)]
    request = ListOffsetsRequest(topics=topics)
    del topics
    parts = [request]
    del request
    assert most_in_one_step(parts.pop()) <= STEP_ELEMENTS
    assert Counted.freed == ELEMENTS


def test_what_something_else_refers_to_stays_whole() -> None:
    whole = deep_request()
    assert list(release([whole])) == []
    assert len(whole.topics[0].partitions) == ELEMENTS
    topics = whole.topics
    held = [whole]
    del whole
    list(release(held))
    assert len(topics[0].partitions) == ELEMENTS
    partitions = topics[0].partitions
    request = ListOffsetsRequest(topics=topics)
    del topics
    held = [request]
    del request
    list(release(held))
    assert len(partitions) == ELEMENTS
