"""The loop of DeadLetters, step by step: what it does with failures, and that it may die anywhere."""

from typing import Any

import pytest
import scripted_kafka
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_kafka import Died, Error, World

from skidway.client import dead_letters, extras
from skidway.client.dead_letters import Backoff, DeadLetterRefused, DeadLetters
from skidway.records.dead_letter_headers import DeathReport, own_headers, read_replays, read_report, replayed_headers

CONFIG = {"bootstrap.servers": "nowhere", "group.id": "billing"}


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class Life:
    """One process with a DeadLetters in it. Messages that begin with `bad` fail."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        monkeypatch.setattr(dead_letters, "load", lambda name, by: scripted_kafka.module(world))
        self.tried: list[bytes] = []
        self.clock = Clock()
        self.letters = DeadLetters(
            CONFIG, ["orders"], self.process, clock=self.clock, chance=lambda: 0.0, **{"attempts": 3, **options}
        )

    def process(self, message: Any) -> None:
        self.tried.append(message.value())
        if message.value().startswith(b"bad"):
            raise ValueError(f"cannot read {message.value().decode()}")

    def run(self, steps: int = 60) -> None:
        for _ in range(steps):
            self.letters.step(0)
            self.clock.now_ms += 100
        self.letters.close()


def test_a_bad_message_is_tried_set_aside_and_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({0: [b"one", b"bad", b"two"]})
    life = Life(world, monkeypatch)
    life.run()
    assert life.tried == [b"one", b"bad", b"bad", b"bad", b"two"]
    assert world.committed == {0: 3}
    ((value, headers),) = world.letters
    assert value == b"bad"
    report = read_report(list(headers.items()))
    assert report is not None
    assert (report.topic, report.partition, report.offset, report.timestamp_ms) == ("orders", 0, 1, 1001)
    assert (report.error_type, report.error_message) == ("ValueError", "cannot read bad")
    assert (report.group, report.attempts, report.replays) == ("billing", 3, 0)
    assert report.failed_first_ms == 1_000_100
    assert report.failed_last_ms == 1_000_400  # Pauses of 100 and 200 ms.
    assert (life.letters.processed, life.letters.dead) == (2, 1)


def test_a_message_that_works_the_second_time_is_no_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({0: [b"bad at first", b"next"]})
    life = Life(world, monkeypatch)
    life.letters.step(0)
    life.process = lambda message: life.tried.append(message.value())  # type: ignore[method-assign]
    life.letters._process = life.process
    life.run()
    assert life.tried == [b"bad at first", b"bad at first", b"next"]
    assert (world.letters, world.committed) == ([], {0: 2})


def test_other_partitions_go_on_while_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({0: [b"bad", b"after bad"], 1: [b"a", b"b", b"c"]})
    life = Life(world, monkeypatch, backoff=Backoff(first_ms=10_000))
    for _ in range(10):
        life.letters.step(0)
    assert sorted(life.tried) == [b"a", b"b", b"bad", b"c"]


def test_errors_that_no_repetition_cures(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({0: [b"bad"]})
    life = Life(world, monkeypatch, fatal=(ValueError,))
    life.run()
    assert life.tried == [b"bad"]
    assert len(world.letters) == 1


def test_nothing_is_committed_before_the_dead_letter_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({0: [b"bad"]}, refusals=[Error(Error._MSG_TIMED_OUT), Error(7, retriable=True)])
    life = Life(world, monkeypatch, attempts=1)
    life.letters.step(0)
    life.letters.step(0)
    assert (world.letters, world.committed) == ([], {})
    life.run()
    assert (len(world.letters), world.committed) == (1, {0: 1})


def test_a_dead_letter_that_is_refused_for_good_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({0: [b"bad"]}, refusals=[Error(10)])
    life = Life(world, monkeypatch, attempts=1)
    with pytest.raises(
        DeadLetterRefused, match="orders-dlq did not accept the dead letter of orders partition 0 offset 0"
    ):
        life.run()
    assert world.committed == {}
    life.run()
    assert (len(world.letters), world.committed) == (1, {0: 1})


@pytest.mark.parametrize("lost", [False, True])
def test_a_held_message_whose_partition_moves_is_forgotten(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    world = World({0: [b"fine", b"bad", b"next"]})
    life = Life(world, monkeypatch, commit_interval_ms=10**9)
    for _ in range(3):
        life.letters.step(0)
    life.letters.consumer.rebalance(lost=lost)
    assert world.committed == ({} if lost else {0: 1})
    life.run()
    assert life.tried.count(b"fine") == (2 if lost else 1)
    assert [value for value, _ in world.letters] == [b"bad"]
    assert world.committed == {0: 3}


def check_survives(
    world: World, monkeypatch: pytest.MonkeyPatch, deaths: list[tuple[int, bool]], **options: Any
) -> None:
    """Die at these steps, one life after the other; then live. Nothing is lost, and order holds in each life."""
    seen: set[bytes] = set()
    for die_at, after in [*deaths, (None, False)]:
        world.steps, world.die_at, world.after = 0, die_at, after
        begin = {partition: world.committed.get(partition, 0) for partition in world.log}
        life = Life(world, monkeypatch, **options)
        try:
            life.run()
        except Died:
            pass
        seen |= set(life.tried)
        for partition, log in world.log.items():
            tried = [value for value in life.tried if value.endswith(b"-%d" % partition)]
            assert list(dict.fromkeys(tried)) == log[begin[partition] :][: len(dict.fromkeys(tried))]
        dead = {value for value, _ in world.letters}
        for partition, position in world.committed.items():
            for value in world.log[partition][:position]:
                assert value in (dead if value.startswith(b"bad") else seen)
    assert world.committed == {partition: len(log) for partition, log in world.log.items() if log}
    assert all(value.startswith(b"bad") for value, _ in world.letters)


def test_it_may_die_at_any_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for die_at in range(1, 12):
        for after in (False, True):
            log = {0: [b"a-0", b"bad1-0", b"b-0", b"bad2-0"], 1: [b"bad3-1", b"c-1"]}
            check_survives(World(log), monkeypatch, [(die_at, after)], commit_interval_ms=0)


@settings(max_examples=60, deadline=None)
@given(
    bad=st.lists(st.lists(st.booleans(), max_size=5), min_size=1, max_size=3),
    deaths=st.lists(st.tuples(st.integers(1, 8), st.booleans()), max_size=4),
    interval_ms=st.sampled_from([0, 250, 100_000]),
    attempts=st.integers(1, 3),
)
def test_it_may_die_again_and_again(
    bad: list[list[bool]], deaths: list[tuple[int, bool]], interval_ms: int, attempts: int
) -> None:
    log = {
        partition: [b"%s%d-%d" % (b"bad" if one else b"ok", number, partition) for number, one in enumerate(flags)]
        for partition, flags in enumerate(bad)
    }
    with pytest.MonkeyPatch.context() as monkeypatch:
        check_survives(World(log), monkeypatch, deaths, commit_interval_ms=interval_ms, attempts=attempts)


def test_pauses_grow_to_a_limit() -> None:
    backoff = Backoff(first_ms=100, max_ms=1000)
    assert [backoff.pause_ms(failures, 0.0) for failures in (1, 2, 3, 4, 5, 500)] == [100, 200, 400, 800, 1000, 1000]
    assert backoff.pause_ms(1, 1.0) == 80


def test_auto_commit_is_refused() -> None:
    with pytest.raises(ValueError, match="before they are processed"):
        DeadLetters({**CONFIG, "enable.auto.commit": "true"}, ["orders"], print)


def test_without_confluent_kafka_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(
        extras.MissingExtra, match=r"DeadLetters needs confluent-kafka: pip install 'skidway\[client\]'"
    ):
        DeadLetters(CONFIG, ["orders"], print)


def test_headers_come_back_as_they_went() -> None:
    report = DeathReport("t", 1, 2, 3, "g", "E", "wörds \ud800", 4, 5, 6, 7)
    original = [("mine", b"\xff"), ("dlq.topic", b"older"), ("empty", None), ("dlq.replays", b"7")]
    headers = report.headers(original)
    assert own_headers(headers) == [("mine", b"\xff"), ("empty", None)]
    found = read_report(headers)
    assert found is not None
    assert (found.topic, found.replays, found.error_message) == ("t", 7, "wörds \\ud800")
    assert read_replays(headers) == 7
    assert replayed_headers(headers, 8) == [("mine", b"\xff"), ("empty", None), ("dlq.replays", b"8")]


@pytest.mark.parametrize("broken", [[], [("dlq.topic", b"t")], [("dlq.topic", b"t"), ("dlq.partition", b"-1")]])
def test_what_is_no_dead_letter(broken: list[tuple[str, bytes | None]]) -> None:
    assert read_report(broken) is None
    assert read_replays([("dlq.replays", b"many"), ("dlq.replays", None)]) == 0


def test_a_long_error_is_cut() -> None:
    headers = dict(DeathReport("t", 0, 0, 0, "g", "E", "x" * 100_000, 1, 1, 1).headers([]))
    assert len(headers["dlq.error.message"] or b"") == 1000
