"""The life of a partition on a node: which steps there are, and which there are not."""

import pytest
from hosting_world import standing, topic_id

from skidway.broker.partitions.lives import Lives, Missing, Opening, Removing, Serving, Settling
from skidway.broker.partitions.partition import Partition
from skidway.metadata.topic_configs import resolve

KEY = (topic_id("t"), 0)
CONFIG = resolve({})


@pytest.fixture
def partition() -> Partition:
    return standing(1).partition("t")


def test_from_its_placement_to_the_end_of_its_files(partition: Partition) -> None:
    lives = Lives()
    lives.open_later(KEY)
    assert lives.absence(*KEY) == Opening()
    lives.settle(partition, CONFIG)
    assert lives.absence(*KEY) is None
    assert (lives.is_settling(partition), lives.settling_count) == (True, 1)
    lives.serve(partition)
    assert isinstance(lives.present_at("t", 0), Serving)
    assert (lives.settling_count, partition.removed) == (0, False)
    lives.remove(partition)
    assert isinstance(lives.present_at("t", 0), Removing)
    assert (lives.removing, partition.removed) == ([partition], True)
    lives.end(partition)
    assert lives.present_at("t", 0) is None


def test_what_is_missing_stays_missing_while_it_is_tried_again(partition: Partition) -> None:
    lives = Lives()
    lives.open_later(KEY)
    assert lives.missing == {}
    lives.miss(KEY, "the disk is full", expected=True)
    assert lives.absence(*KEY) == Missing("the disk is full", expected=True)
    lives.open_later(KEY)
    assert lives.absence(*KEY) == Opening(missed=Missing("the disk is full", expected=True))
    assert lives.missing == {KEY: "the disk is full"}
    assert lives.was_expected(*KEY)
    lives.serve(partition)
    assert lives.missing == {}
    assert not lives.was_expected(*KEY)


def test_a_partition_that_comes_back_waits_for_the_name_of_its_directory(partition: Partition) -> None:
    lives = Lives()
    lives.open_later(KEY)
    lives.serve(partition)
    lives.remove(partition)
    lives.open_later(KEY)
    with pytest.raises(AssertionError, match="taken"):
        lives.serve(partition)
    lives.miss(KEY, "its name is taken", expected=False)
    lives.end(partition)
    lives.open_later(KEY)
    lives.serve(partition)


def test_one_that_goes_while_it_settles_is_not_counted_any_more(partition: Partition) -> None:
    lives = Lives()
    lives.open_later(KEY)
    assert lives.settle(partition, CONFIG) == Settling(partition, CONFIG)
    lives.remove(partition)
    assert (lives.settling_count, lives.settling) == (0, [])


def test_there_is_no_other_way(partition: Partition) -> None:
    lives = Lives()
    with pytest.raises(AssertionError, match="nobody wanted it"):
        lives.serve(partition)
    with pytest.raises(AssertionError, match="nobody wanted it"):
        lives.miss(KEY, "why", expected=False)
    with pytest.raises(AssertionError, match="is not here"):
        lives.remove(partition)
    with pytest.raises(AssertionError, match="not being removed"):
        lives.end(partition)
    lives.open_later(KEY)
    with pytest.raises(AssertionError, match="already"):
        lives.open_later(KEY)
