"""Brokers that join, are drained and forgotten in simulated clusters: all of it is reached, and no law is broken."""

from types import SimpleNamespace
from typing import Any

import pytest

from skidway.sim.laws.brokers import BrokerLaws
from skidway.sim.plan import draw_plan
from skidway.sim.run import Run
from skidway.sim.world.events import Violation

SECONDS = 8


@pytest.fixture(scope="module")
def whole() -> Run:
    """The first of a few stories in which a drained broker was forgotten: any change moves what a seed does."""
    for seed in range(8):
        whole = Run(draw_plan(seed, nodes=3, seconds=SECONDS, kinds=["join", "drain", "power"]))
        whole.run()  # raises Violation
        if whole.world.marks.get("broker forgotten"):
            return whole
    pytest.fail("no broker was forgotten in any of them")


def test_a_broker_joins_and_another_goes_for_good(whole: Run) -> None:
    marks = whole.world.marks
    assert marks["broker joined"] == 2
    assert marks["broker drained"] >= 1
    assert marks["broker forgotten"] >= 1


def test_a_drained_broker_is_off_and_others_have_what_it_had(whole: Run) -> None:
    gone = set(range(1, 6)) - set(whole.cluster.hosts)
    assert gone
    assert len(whole.cluster.hosts) == 5 - len(gone)
    for _, node in whole.cluster.running:
        assert not gone & {voter.member.node_id for voter in node.quorum.quorum.voters}
        assert not gone & set(node.image.brokers)
        for topic in node.image.topics.values():
            assert not any(gone & set(partition.replicas) for partition in topic.partitions)


def test_an_epoch_that_two_brokers_were_given() -> None:
    def image(*brokers: tuple[int, int, bytes]) -> Any:
        described = [SimpleNamespace(id=number, epoch=epoch, incarnation_id=run) for number, epoch, run in brokers]
        return SimpleNamespace(brokers={each.id: each for each in described})

    laws = BrokerLaws(SimpleNamespace(running=[]))  # type: ignore[arg-type]
    laws._check_epochs(image((1, 4, b"a"), (2, 5, b"b")))
    laws._check_epochs(image((1, 4, b"a"), (2, 6, b"c")))
    for wrong in ((3, 5, b"d"), (2, 6, b"d"), (2, 4, b"c")):
        with pytest.raises(Violation) as broken:
            laws._check_epochs(image(wrong))
        assert broken.value.checker == "broker-epochs"
