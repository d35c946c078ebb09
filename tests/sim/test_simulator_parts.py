"""The simulator's own parts: histories that cannot be true are told by name, cuts hold bytes back, nothing escapes."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from skidway.cli.main import main
from skidway.replica.news import CopyDamaged, Remedy
from skidway.sim.clients.producers import Batch, ProducerPlan
from skidway.sim.faults.damage import Damage
from skidway.sim.faults.nemesis import Nemesis
from skidway.sim.laws.groups import GroupLaws
from skidway.sim.laws.history import History
from skidway.sim.plan import Fault, draw_plan
from skidway.sim.run import Verdict
from skidway.sim.shrink import shrink
from skidway.sim.world import guard
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import MS, SECOND, Violation, World
from skidway.sim.world.network import End, Network

TOPIC_ID = bytes(16)


def batch(*values: bytes, sequence: int = 0, **options: Any) -> Batch:
    plan = ProducerPlan("t", 1, 10, **options)
    producer = SimpleNamespace(plan=plan, place="p0")
    made = Batch(producer, "t", 0, list(values), 0)  # type: ignore[arg-type]
    made.producer_id, made.sequence = 7, sequence
    return made


class Told(History):
    def ack(self, offset: int, *values: bytes, sequence: int = 0, **options: Any) -> None:
        sent = batch(*values, sequence=sequence, **options)
        self.sent(sent)
        self.acked(sent, TOPIC_ID, offset)

    def saw(self, offset: int, value: bytes, reader: str = "r0") -> None:
        self.read(reader, "t", TOPIC_ID, 0, offset, value)


@pytest.fixture
def told() -> Told:
    return Told(World(1))


def law(error: pytest.ExceptionInfo[Violation]) -> str:
    return error.value.checker


def test_one_offset_with_two_values(told: Told) -> None:
    told.ack(0, b"a")
    with pytest.raises(Violation) as error:
        told.ack(0, b"b", sequence=1)
    assert law(error) == "inconsistent-offset"


def test_one_value_at_two_offsets(told: Told) -> None:
    told.ack(0, b"a")
    with pytest.raises(Violation) as error:
        told.saw(5, b"a")
    assert law(error) == "duplicate"


def test_a_plain_producer_that_repeats_may_write_twice(told: Told) -> None:
    told.ack(0, b"a", idempotent=False)
    told.saw(5, b"a")


def test_batches_in_another_order(told: Told) -> None:
    told.ack(5, b"b", sequence=1)
    with pytest.raises(Violation) as error:
        told.ack(9, b"a", sequence=0)
    assert law(error) == "reordered"


def test_a_value_that_nobody_sent(told: Told) -> None:
    with pytest.raises(Violation) as error:
        told.saw(0, b"x")
    assert law(error) == "phantom"


def test_what_was_acknowledged_and_is_gone(told: Told) -> None:
    told.ack(0, b"a")
    told.ack(1, b"b", sequence=1)
    told.saw(1, b"b", reader="last")
    with pytest.raises(Violation) as error:
        told.check_complete()
    assert law(error) == "lost"


def test_a_tail_that_was_never_seen(told: Told) -> None:
    told.ack(0, b"a")
    told.ack(1, b"b", sequence=1)
    told.saw(0, b"a", reader="last")
    with pytest.raises(Violation) as error:
        told.check_complete()
    assert law(error) == "unseen"


def test_acknowledged_by_the_leader_alone_may_be_lost(told: Told) -> None:
    told.ack(0, b"a", acks=1, idempotent=False)
    told.check_complete()


def test_a_watermark_that_goes_back(told: Told) -> None:
    told.watermark("r0", TOPIC_ID, 0, 3, 10)
    told.watermark("r0", TOPIC_ID, 0, 4, 8)
    with pytest.raises(Violation) as error:
        told.watermark("r0", TOPIC_ID, 0, 4, 7)
    assert law(error) == "watermark"


def test_a_committed_offset_that_was_lost() -> None:
    world = World(1)
    laws = GroupLaws(world, SimpleNamespace(running=[]))  # type: ignore[arg-type]
    key = ("t", 0)
    unknown = laws.committing("m", 1, "g", key, 5)
    laws.answered(unknown, None)
    world.now_us = 10
    laws.answered(laws.committing("m", 1, "g", key, 9), 0)
    # The one nobody answered may come late; the one before everything may not.
    laws.fetched("m", "g", key, 5, 20)
    laws.fetched("m", "g", key, 9, 20)
    for offset in (-1, 7):
        with pytest.raises(Violation) as error:
            laws.fetched("m", "g", key, offset, 20)
        assert law(error) == "committed-offsets"


def test_a_commit_that_comes_after_the_partition_was_lost() -> None:
    world = World(1)
    laws = GroupLaws(world, SimpleNamespace(running=[]))  # type: ignore[arg-type]
    key = ("t", 0)
    laws.took("old", 1, "g", key)
    laws.answered(laws.committing("old", 1, "g", key, 5), None)
    world.now_us = 10
    laws.took("new", 2, "g", key)
    # What the one before sent may have been in time, until the one after has committed.
    laws.fetched("new", "g", key, 5, 11)
    world.now_us = 20
    laws.answered(laws.committing("new", 2, "g", key, 9), 0)
    with pytest.raises(Violation) as error:
        laws.fetched("new", "g", key, 5, 30)
    assert law(error) == "committed-offsets"
    with pytest.raises(Violation) as error:
        laws.answered(laws.committing("old", 1, "g", key, 7), 0)
    assert law(error) == "committed-offsets"


def test_a_cut_holds_bytes_until_it_is_healed() -> None:
    world = World(1)
    network = Network(world, world.stream("network"), 500)
    received: list[bytes] = []
    ends: list[End] = []

    def accept(end: End) -> None:
        end.on_bytes = received.append

    network.listen(("b", 1), "b", accept)
    network.connect("a", ("b", 1), ends.append, lambda: None)
    world.run(SECOND)
    network.cut("a", "b")
    ends[0].send(b"one")
    world.run(2 * SECOND)
    ends[0].send(b"two")
    world.run(3 * SECOND)
    assert received == []
    network.heal("a", "b")
    world.run(4 * SECOND)
    assert b"".join(received) == b"onetwo"


def test_nothing_of_the_real_world_is_reached() -> None:
    with guard.forbidden():
        with pytest.raises(guard.Escaped):
            open("/etc/hostname")  # noqa: SIM115
        with pytest.raises(guard.Escaped):
            time.monotonic()
    assert time.monotonic() > 0


def test_shrinking_keeps_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A law that only one of the faults breaks: the others are left out."""
    plan = draw_plan(3, nodes=1)
    guilty = plan.faults[len(plan.faults) // 2]

    def run_plan(smaller: Any) -> Verdict:
        broken = any(str(fault) == str(guilty) for fault in smaller.faults)
        return Verdict(3, "lost" if broken else "")

    monkeypatch.setattr("skidway.sim.shrink.run_plan", run_plan)
    smallest, _ = shrink(plan, "lost")
    assert [str(fault) for fault in smallest.faults] == [str(guilty)]
    assert len(smallest.producers) == 1
    assert smallest.seconds <= guilty.at_ms // 1_000 + 2


def test_a_seed_is_replayed_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "replay", "--seed", "3", "--nodes", "1"]) == 0
    first = capsys.readouterr().out
    assert main(["sim", "replay", "--seed", "3", "--nodes", "1"]) == 0
    assert capsys.readouterr().out == first
    assert "no law was broken" in first


def test_a_range_of_seeds_is_run_and_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", "--from", "3", "--seeds", "2", "--nodes", "1", "--jobs", "1"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("seeds 3 to 4: skidway sim run --from 3 --seeds 2\n")
    assert "2 seeds, 0.0 virtual hours" in told
    assert "no law was broken" in told


def fails_at(monkeypatch: pytest.MonkeyPatch, *failing: int) -> list[int]:
    """What the processes of `sim run` would say, and which seeds they were asked for."""
    asked: list[int] = []

    def verdicts(seeds: range, jobs: int, nodes: int | None, kind: str) -> Iterator[Verdict]:
        for seed in seeds:
            asked.append(seed)
            yield Verdict(seed, "lost" if seed in failing else "", f"what {seed} lost", virtual_s=3_600)

    monkeypatch.setattr("skidway.cli.commands.sim._verdicts", verdicts)
    return asked


def test_every_broken_law_is_told_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = fails_at(monkeypatch, 12, 14)
    assert main(["sim", "run", "--from", "10", "--seeds", "6"]) == 1
    told = capsys.readouterr().out
    assert asked == [10, 11, 12, 13, 14, 15]
    for seed in (12, 14):
        assert f"seed {seed}: lost: what {seed} lost" in told
        assert f"skidway sim replay --seed {seed}  # lost" in told
    assert "6 seeds, 6.0 virtual hours" in told


def test_a_run_can_stop_at_the_first_broken_law(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = fails_at(monkeypatch, 12, 14)
    assert main(["sim", "run", "--from", "10", "--seeds", "6", "--stop"]) == 1
    assert asked == [10, 11, 12]
    assert "3 seeds, 3.0 virtual hours" in capsys.readouterr().out


def test_seeds_with_transactions_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_at(monkeypatch, 12)
    assert main(["sim", "run", "--from", "10", "--seeds", "3", "--transactions"]) == 1
    told = capsys.readouterr().out
    assert told.startswith("seeds 10 to 12: skidway sim run --from 10 --seeds 3 --transactions\n")
    assert "skidway sim replay --seed 12 --transactions  # lost" in told


def test_a_seed_with_transactions_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "replay", "--seed", "7", "--nodes", "1", "--transactions"]) == 0
    told = capsys.readouterr().out
    assert "transactional ids" in told
    assert " committed by (" in told


def test_a_seed_with_share_groups_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "replay", "--seed", "22", "--nodes", "1", "--shares"]) == 0
    told = capsys.readouterr().out
    assert "share groups with" in told
    assert " and heard NONE" in told


def test_a_plan_has_transactions_or_share_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", "--transactions", "--shares"]) == 2
    assert "choose one of --transactions and --shares" in capsys.readouterr().err


def test_fresh_seeds_are_others_every_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = fails_at(monkeypatch)
    for _ in range(2):
        assert main(["sim", "run", "--fresh", "--seeds", "3"]) == 0
        first = asked[-3]
        assert f"skidway sim run --from {first} --seeds 3" in capsys.readouterr().out
    assert len(set(asked)) == 6


def test_time_is_virtual() -> None:
    world = World(1)
    seen: list[int] = []
    world.after(5 * MS, lambda: seen.append(world.now_us))
    world.after(5 * MS, lambda: seen.append(-1))
    world.run(SECOND)
    assert seen == [5 * MS, -1]


def test_a_disk_that_fails_in_a_cut_excuses_what_is_given_up() -> None:
    world, plan = World(1), draw_plan(1, nodes=3)
    cluster = Cluster(world, Network(world, world.stream("network"), 500), plan)
    damage, host = Damage(world, cluster, ["t0"]), cluster.hosts[1]
    told = CopyDamaged("t0-0", "[Errno 5] Input/output error", Remedy.FETCH, by_failed_cut=True)
    assert damage.judge(host, told) == "false-alarm"
    host.disk.failing_syncs = {0}
    with pytest.raises(OSError):
        host.disk.open("any", create=True).sync()
    assert damage.judge(host, told) == ""
    assert damage.judge(host, CopyDamaged("t0-0", "its checksum is wrong", Remedy.FETCH)) == "false-alarm"
    host.disk.kill()
    assert damage.judge(host, told) == "false-alarm", "the disk has refused this process nothing"


def test_no_second_machine_loses_power_before_the_first_has_registered_again() -> None:
    world, plan = World(1), draw_plan(1, nodes=3)
    plan.lossy, plan.one_by_one = False, True
    plan.faults = [Fault(3_000, "power", 0, 10, 0), Fault(3_020, "power", 1, 10, 0), Fault(9_000, "power", 2, 10, 0)]
    cluster = Cluster(world, Network(world, world.stream("network"), 500), plan)
    cluster.start()
    Nemesis(world, cluster, plan, list).begin()

    def boots() -> list[int]:
        return [host.disk.boots for host in cluster.hosts.values()]

    world.run(3_019 * MS)
    assert boots() == [1, 0, 0]
    assert len(cluster.running) == 3, "all run again"
    world.run(8_999 * MS)
    assert boots() == [1, 0, 0], "the second was only killed"
    assert all(node.broker_epoch >= 0 for _, node in cluster.running)
    world.run(9_001 * MS)
    assert boots() == [1, 0, 1]
