"""The loads on share groups, against the broker of this tree, and where their figures are told."""

from collections.abc import Iterator

import pytest
from bench import share_suite, shares
from bench.broker import Skidway
from bench.frames import BenchError, Peer
from bench.share_frames import Session, read_fetch
from bench.suite import Outcome


@pytest.fixture(scope="module")
def broker() -> Iterator[Skidway]:
    with Skidway("--flush", "os") as subject:
        yield subject  # type: ignore[misc]


@pytest.mark.parametrize("kind", [shares.Streaming, shares.Ranges, shares.OneByOne])
def test_records_are_acquired_and_accepted(broker: Skidway, kind: type[shares.Member]) -> None:
    found = shares.rate(broker, kind, 8, 8_000, 20.0)
    assert found["records"] > 0
    assert found["cpu_record"] >= 0


def test_many_groups_have_all_records_each(broker: Skidway) -> None:
    assert shares.many_groups(broker, 5, 10_000, 20.0)["records"] > 0


def test_acknowledgements_at_a_rate_are_all_answered(broker: Skidway) -> None:
    found = shares.latencies(broker, 0.1)
    assert 0 < found["p50"] <= found["p99"]


def test_a_new_group_gets_its_first_record(broker: Skidway) -> None:
    assert shares.first_delivery(broker, 1)["join"] > 0


def test_a_refused_acknowledgement_gives_no_figure(broker: Skidway) -> None:
    with shares.filled(broker, 1, 100) as topic:
        group = shares.new_group()
        topic_id = shares.join(broker, [group], topic, 1, {})
        session = Session(group, "m", topic_id, [0])
        with Peer(broker.bootstrap) as peer:
            assert read_fetch(peer.exchange(session.fetch(500, 500, {}))) == {0: [(0, 99)]}
            peer.exchange(session.acknowledge({0: [(0, 99)]}))
            with pytest.raises(BenchError, match="42"):
                read_fetch(peer.exchange(session.fetch(500, 0, {0: [(100, 199)]})))


def test_the_table_has_both_brokers_and_the_ratio() -> None:
    ours = {"records": 300e3, "cpu_record": 3.0, "cores": 0.9}
    theirs = {"records": 100e3, "cpu_record": 9.0, "cores": 1.2}
    row = share_suite.rows(Outcome(figures={"skidway": {"shares-500": ours}, "kafka": {"shares-500": theirs}}))[0]
    assert row[1:] == ["300,000", "100,000", "3.00×", "3.00", "9.00", "0.90"]
