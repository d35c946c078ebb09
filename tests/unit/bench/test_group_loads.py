"""The loads on groups, against the broker of this tree, and where their figures are told."""

from collections.abc import Iterator

import pytest
from bench import groups
from bench.broker import Skidway
from bench.frames import BenchError, Peer
from bench.report import group_rows, throughput_rows
from bench.suite import Outcome


@pytest.fixture(scope="module")
def broker() -> Iterator[Skidway]:
    with Skidway() as subject:
        with Peer(subject.bootstrap) as peer:
            peer.create_topic("shared", groups.COMMIT_GROUPS, {})
        yield subject  # type: ignore[misc]


def test_a_crowd_forms_rebalances_and_leaves(broker: Skidway) -> None:
    assert groups.rebalance(7, "shared")(broker, 0)["ms"] > 0


def test_commits_are_counted_and_found_again(broker: Skidway) -> None:
    assert groups.commits("shared")(broker, 0.2)["requests"] > 0


def test_refused_commits_give_no_figure(broker: Skidway) -> None:
    with pytest.raises(BenchError, match="error code 3"):
        groups.commits("nowhere")(broker, 0.1)


def test_the_table_of_groups_has_both_brokers_and_the_ratio() -> None:
    outcome = Outcome(figures={"skidway": {"rebal12": {"ms": 3.0}}, "kafka": {"rebal12": {"ms": 6.0}}})
    row = next(row for row in group_rows(outcome) if "12 members" in row[0])
    assert row[1:] == ["3", "6", "0.50×"]
    assert not any("members" in row[0] for row in throughput_rows(outcome))
