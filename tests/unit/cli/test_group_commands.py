"""`skidway group` against a real broker with real members."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from typer.testing import CliRunner, Result

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.groups import Group, Groups, Member
from skidway.blocking_client.producer import Producer
from skidway.cli.commands.group import age, app, who


@pytest.fixture
def cluster(group_bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", group_bootstrap)
    with Cluster(group_bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    """Ten messages in each of two partitions, a minute between them, the last of them a minute ago."""
    Admin(cluster).create_topic(name, partitions=2)
    now_ms = time.time_ns() // 1_000_000
    with Producer(cluster) as producer:
        for number in range(10):
            for partition in range(2):
                stamp = now_ms - (10 - number) * 60_000
                producer.send(name, str(number).encode(), partition=partition, timestamp_ms=stamp)
    return name


@pytest.fixture
def group(cluster: Cluster, topic: str) -> str:
    """An empty group that has read 4 messages of partition 0 and 10 of partition 1."""
    Groups(cluster).commit(f"g-{topic}", {(topic, 0): 4, (topic, 1): 10})
    return f"g-{topic}"


def run(*words: str, fails: bool = False, stdin: str = "") -> Result:
    result = CliRunner().invoke(app, list(words), input=stdin)
    assert (result.exit_code != 0) == fails, result.output
    return result


def read_json(*words: str) -> Any:
    return json.loads(run(*words, "--json").stdout)


def offsets(cluster: Cluster, group: str) -> list[int]:
    return [entry.offset for _, entry in sorted(Groups(cluster).committed(group).items())]


def test_list_and_describe(group: str, topic: str) -> None:
    assert group in run("list", "--names").stdout.splitlines()
    assert {"group": group, "state": "Empty"}.items() <= next(
        one for one in read_json("list") if one["group"] == group
    ).items()
    (described,) = read_json("describe", group)
    first, second = described["partitions"]
    assert {"committed": 4, "end": 10, "lag": 6, "owner": None, "deleted_unread": 0}.items() <= first.items()
    assert 6 * 60 <= first["behind_s"] < 7 * 60
    assert (second["lag"], second["behind_s"]) == (0, 0)
    assert (described["lag"], described["members"]) == (6, [])
    shown = run("describe", group).stdout
    header = next(line for line in shown.splitlines() if line.startswith("TOPIC"))
    assert header.split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND", "OWNER"]
    row = next(line.split() for line in shown.splitlines() if line.startswith(topic))
    assert row[:5] == [topic, "0", "4", "10", "6"]
    assert row[5].endswith("m")


def test_a_live_group_is_described_and_not_touched(
    cluster: Cluster, group_bootstrap: str, group: str, topic: str
) -> None:
    settings = {
        "bootstrap.servers": group_bootstrap,
        "group.id": group,
        "client.id": "till-7",
        "enable.auto.commit": False,
    }
    member = KafkaConsumer(settings)
    member.subscribe([topic])
    try:
        deadline = time.monotonic() + 60
        while not member.assignment() and time.monotonic() < deadline:
            member.poll(0.1)
        (described,) = read_json("describe", group)
        assert {entry["owner"] for entry in described["partitions"]} == {described["members"][0]["member"]}
        assert "till-7" in run("describe", group).stdout
        refused = run("reset", group, "--to", "earliest", "--execute", fails=True).stderr
        assert "is in use: Stable, 1 member (till-7 at 127.0.0.1)" in refused
        assert "stop them first" in refused
        assert "stop them first" in run("delete", group, "--yes", fails=True).stderr
        assert offsets(cluster, group) == [4, 10]
    finally:
        member.close()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to", "earliest"), [0, 0]),
        (("--to", "latest"), [10, 10]),
        (("--to", "3"), [3, 3]),
        (("--to", "99"), [10, 10]),
        (("--to", "-2"), [8, 8]),
        (("--to", "270s"), [6, 6]),
        (("--shift", "-3"), [1, 7]),
        (("--shift", "+5"), [9, 10]),
        (("--to", "earliest", "--partition", "1"), [4, 0]),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_reset(cluster: Cluster, group: str, topic: str, words: tuple[str, ...], expected: list[int]) -> None:
    shown = run("reset", group, *words).stdout
    assert "dry run: nothing was changed" in shown
    assert offsets(cluster, group) == [4, 10]
    planned = read_json("reset", group, *words)
    assert planned["executed"] is False
    assert "dry run" not in run("reset", group, *words, "--execute").stdout
    assert offsets(cluster, group) == expected
    assert {entry["partition"]: entry["to"] for entry in planned["partitions"]}.items() <= dict(
        enumerate(expected)
    ).items()


def test_a_reset_shows_from_and_to(group: str, topic: str) -> None:
    rows = [line.split() for line in run("reset", group, "--shift", "3").stdout.splitlines()]
    assert rows[0] == ["TOPIC", "PARTITION", "FROM", "TO", "CHANGE", "NOTE"]
    assert rows[1] == [topic, "0", "4", "7", "+3"]
    assert rows[2][:5] == [topic, "1", "10", "10", "none"]
    assert "after the end" in " ".join(rows[2])


def test_a_reset_to_a_time_written_out(cluster: Cluster, group: str) -> None:
    from datetime import UTC, datetime, timedelta

    moment = datetime.now(UTC) - timedelta(minutes=2, seconds=30)
    run("reset", group, "--to", moment.isoformat(timespec="seconds"), "--execute")
    assert offsets(cluster, group) == [8, 8]


def test_a_group_can_be_prepared_before_it_exists(cluster: Cluster, topic: str) -> None:
    fresh = f"fresh-{topic}"
    assert "no such group" in run("reset", fresh, "--to", "latest", fails=True).stderr
    run("reset", fresh, "--to", "latest", "--topic", topic, "--execute")
    assert offsets(cluster, fresh) == [10, 10]


def test_only_the_topics_named(cluster: Cluster, group: str, topic: str) -> None:
    Admin(cluster).create_topic(f"{topic}-b", partitions=1)
    Groups(cluster).commit(group, {(f"{topic}-b", 0): 0})
    planned = read_json("reset", group, "--to", "earliest", "--topic", topic)
    assert {entry["topic"] for entry in planned["partitions"]} == {topic}
    assert "no such partition" in run("reset", group, "--to", "0", "-t", topic, "-p", "7", fails=True).stderr


def test_delete(group: str) -> None:
    assert run("delete", group, stdin="n\n", fails=True).exit_code == 1
    ended = run("delete", "no-such-group", group, "--yes", fails=True)
    assert (ended.exit_code, ended.stdout) == (1, f"deleted {group}\n")
    assert "group no-such-group: there is no such group" in ended.stderr
    assert "no such group" in run("describe", group, fails=True).stderr
    assert "no such group" in run("delete", group, "--yes", fails=True).stderr


def test_groups_that_are_there_are_described_beside_one_that_is_not(group: str) -> None:
    ended = run("describe", "no-such-group", group, fails=True)
    assert ended.exit_code == 1
    assert ended.stdout.startswith(f"{group}  Empty")
    assert ended.stderr == "error: group no-such-group: there is no such group (GROUP_ID_NOT_FOUND)\n"


def test_only_states_that_groups_can_be_in(group: str) -> None:
    assert group in run("list", "--state", "empty", "--names").stdout.splitlines()
    refused = run("list", "--state", "Busy", fails=True)
    assert refused.exit_code == 2
    assert "'Busy' is not a state of a group; expected Empty, Stable" in refused.stderr


def test_a_full_partition_without_a_commit_is_no_lag_of_zero(
    cluster: Cluster, topic: str, group_bootstrap: str
) -> None:
    """Where its owner begins is up to the owner, so it is told apart from what is known."""
    settings = {"bootstrap.servers": group_bootstrap, "group.id": f"new-{topic}", "enable.auto.commit": False}
    member = KafkaConsumer(settings)
    member.subscribe([topic])
    try:
        deadline = time.monotonic() + 60
        while not member.assignment() and time.monotonic() < deadline:
            member.poll(0.1)
        shown = run("describe", f"new-{topic}").stdout
        assert "1 member, lag 0 and 2 partitions without a commit, coordinator" in shown
    finally:
        member.close()


def test_a_static_member_on_a_topic_that_was_deleted(cluster: Cluster, topic: str, group_bootstrap: str) -> None:
    group = f"static-{topic}"
    settings = {
        "bootstrap.servers": group_bootstrap,
        "group.id": group,
        "group.instance.id": "till-1",
        "allow.auto.create.topics": False,
        "topic.metadata.refresh.interval.ms": 600_000,
        "log_level": 0,
    }
    member = KafkaConsumer(settings)
    member.subscribe([topic])
    try:
        deadline = time.monotonic() + 60
        while not member.assignment() and time.monotonic() < deadline:
            member.poll(0.1)
        member.pause(member.assignment())  # one that fetches finds out, and leaves the topic by itself
        Admin(cluster).delete_topic(topic)
        shown = run("describe", group)
        assert f"warning: {topic} partition 1: it no longer exists" in shown.stderr
        assert "1 member, lag 0, coordinator" in shown.stdout
        refused = run("reset", group, "--to", "earliest", fails=True).stderr
        assert "(one with an instance id stays for its session timeout)" in refused
    finally:
        member.close()


def test_a_few_of_many_members_are_named() -> None:
    members = [Member(f"id-{number}", None, f"app-{number}", "10.0.0.1", []) for number in range(50)]
    group = Group("g", "Stable", "classic", "consumer", "range", Address("localhost", 9092), members)
    assert who(group) == "50 members (app-0 at 10.0.0.1, app-1 at 10.0.0.1, app-10 at 10.0.0.1 and 47 more)"


def test_the_name_of_a_group_commands_no_terminal(cluster: Cluster, topic: str) -> None:
    """A group is called whatever a client likes."""
    named = f"{topic}\x1b[2J\n"
    Groups(cluster).commit(named, {(topic, 0): 4})
    for words in (("list",), ("describe", named), ("reset", named, "--to", "earliest")):
        assert "\x1b" not in run(*words).stdout
    assert f"{topic}\\x1b[2J\\n" in run("list").stdout
    assert [one["group"] for one in read_json("list") if one["group"].startswith(topic)] == [named]
    refused = run("describe", f"{named}?", fails=True).stderr
    assert len(refused.splitlines()) == 1


def test_ages() -> None:
    assert [age(seconds) for seconds in (None, 0.0, 1.234, 75, 5400, 200_000)] == [
        "-",
        "0s",
        "1.23s",
        "1.25m",
        "1.5h",
        "2.3d",
    ]
