"""Counting what was rejected, without Spark."""

import pytest

from skidway.spark.pipelines.archive import ArchiveOptions
from skidway.spark.pipelines.options import BadPipeline
from skidway.spark.pipelines.values.rejects import Rejects, TooManyRejected, parse_share


def test_rejects_are_counted_by_reason_the_most_frequent_first() -> None:
    rejects = Rejects()
    rejects.add(10, {"a": 1, "b": 0})
    rejects.add(10, {"a": 1, "b": 4})
    assert rejects.counts() == {"rejected": 6, "rejected (b)": 4, "rejected (a)": 2}
    assert Rejects().counts() == {}
    rejects.check()


def test_a_share_is_a_limit_and_exactly_that_much_is_not_too_much() -> None:
    rejects = Rejects(parse_share("5%"))
    rejects.add(20, {"a": 1})
    rejects.check()
    rejects.add(0, {"b": 1})
    with pytest.raises(TooManyRejected, match=r"2 of 20 records were rejected, more than 0.05 of them .* because a"):
        rejects.check()
    none = Rejects(parse_share("0%"))
    none.check()
    none.add(1, {"a": 1})
    with pytest.raises(TooManyRejected):
        none.check()


@pytest.mark.parametrize("text", ["5", "five%", "-1%", "101%", "%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(BadPipeline, match="is not a share"):
        ArchiveOptions(topic=["t"], path="x", schema="n int", max_rejected=text)
