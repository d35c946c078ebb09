"""`skidway group` for share groups, against a real broker with confluent-kafka's ShareConsumer."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, ShareConsumer
from typer.testing import CliRunner, Result

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.producer import Producer
from skidway.blocking_client.share_groups import ShareGroups
from skidway.cli.commands.group import app
from waiting import eventually

MESSAGES = 6


@pytest.fixture
def cluster(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    Admin(cluster).create_topic(name, partitions=1)
    with Producer(cluster) as producer:
        for number in range(MESSAGES):
            producer.send(name, str(number).encode(), partition=0)
    return name


@pytest.fixture
def group(topic: str) -> str:
    """Nobody has joined it: it exists because somebody said where it starts."""
    name = f"g-{topic}"
    run("reset", name, "--share", "--topic", topic, "--to", "earliest", "--execute")
    return name


@pytest.fixture
def member(bootstrap: str, group: str, topic: str) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    yield consumer
    try:
        consumer.close()
    except RuntimeError:
        pass  # the test has closed it


def run(*words: str, code: int = 0, stdin: str = "") -> Result:
    result = CliRunner().invoke(app, list(words), input=stdin)
    assert result.exit_code == code, result.output
    return result


def described(group: str, *words: str) -> Any:
    (document,) = json.loads(run("describe", group, "--json", *words).stdout)
    return document


def test_a_share_group_at_work(group: str, topic: str, member: ShareConsumer) -> None:
    messages = eventually(lambda: member.poll(1.0))
    assert len(messages) == MESSAGES
    for message in messages:
        kind = AcknowledgeType.RELEASE if message.offset() in (1, 2) else AcknowledgeType.ACCEPT
        if (message.offset() or 0) < 4:
            member.acknowledge(message, kind)
    member.commit_sync()
    eventually(lambda: described(group)["locked"] == 2)
    document = described(group)
    assert (document["type"], document["state"], document["lag"]) == ("share", "Stable", 4)
    assert [each["partitions"] for each in document["members"]] == [1]
    (found,) = document["partitions"]
    assert {"topic": topic, "partition": 0, "members": 1, "start_offset": 1, "end": MESSAGES, "lag": 4}.items() <= (
        found.items()
    )
    assert (found["locked"], found["waiting_again"], found["deliveries"]) == (2, 2, {"1": 4})
    assert found["behind_s"] >= 0
    assert found["oldest_ms"] > 0
    listed = json.loads(run("list", "--json").stdout)
    assert {"group": group, "type": "share", "state": "Stable", "protocol": "share"} in listed
    text = run("describe", group).stdout.splitlines()
    assert text[0].split() == [group, "Stable", "share", "simple"]
    assert text[1].startswith("1 member, lag 4, 2 locked, oldest ")
    columns = ["TOPIC", "PARTITION", "START", "END", "LAG", "LOCKED", "DELIVERIES", "OLDEST", "MEMBERS"]
    assert text[2].split() == columns
    assert text[3].split()[:7] == [topic, "0", "1", "6", "4", "2", "1:4"]
    refused = run("reset", group, "--to", "latest", code=1).stderr
    assert "is in use: Stable, 1 member" in refused
    assert "a share group is moved only while it has no members" in refused
    assert "NON_EMPTY_GROUP" in run("delete", group, "--yes", code=1).stderr


def test_a_share_group_is_moved_and_deleted(group: str, topic: str, cluster: Cluster) -> None:
    def start() -> int:
        return ShareGroups(cluster).offsets(group)[topic, 0].start

    assert start() == 0
    shown = run("reset", group, "--to", "4")
    assert "dry run: nothing was changed" in shown.stdout
    assert start() == 0
    assert f"group {group} reset" in run("reset", group, "--to", "4", "--execute").stdout
    assert start() == 4
    run("reset", group, "--shift", "-1", "--execute")
    assert start() == 3
    assert described(group)["lag"] == MESSAGES - 3
    (found,) = described(group)["partitions"]
    assert (found["locked"], found["deliveries"]) == (0, None), "nobody fetches"
    assert "delete" in run("delete", group, stdin="y\n").stdout
    assert "GROUP_ID_NOT_FOUND" in run("describe", group, code=1).stderr


def test_a_share_group_forgets_a_topic(group: str, topic: str, cluster: Cluster) -> None:
    other = f"{topic}-other"
    Admin(cluster).create_topic(other, partitions=2)
    run("reset", group, "--topic", other, "--to", "earliest", "--execute")

    def known() -> set[tuple[str, int]]:
        return set(ShareGroups(cluster).offsets(group))

    assert known() == {(topic, 0), (other, 0), (other, 1)}
    for words in ((), ("--dry-run",)):
        shown = run("forget", group, "--topic", other, *words).stdout
        rows = [["TOPIC", "PARTITION", "OFFSET"], [other, "0", "0"], [other, "1", "0"]]
        assert [line.split() for line in shown.splitlines()[:3]] == rows
        assert shown.endswith("dry run: nothing was changed; --execute does it\n")
    assert known() == {(topic, 0), (other, 0), (other, 1)}
    error = run("forget", group, "--topic", other, "--topic", topic[:-1], "--execute", code=1).stderr
    assert error == f"error: group {group} has no offsets of topic {topic[:-1]}; did you mean {topic}?\n"
    assert known() == {(topic, 0), (other, 0), (other, 1)}, "nothing is forgotten then"
    assert "contradict" in run("forget", group, "--topic", other, "--execute", "--dry-run", code=2).stderr
    document = json.loads(run("forget", group, "--topic", other, "--execute", "--json").stdout)
    assert (document["executed"], len(document["partitions"])) == (True, 2)
    assert known() == {(topic, 0)}
    assert f"group {group} has forgotten that" in run("forget", group, "--topic", topic, "--execute").stdout
    assert known() == set()
    assert "has no offsets of topic" in run("forget", group, "--topic", topic, "--execute", code=1).stderr
    assert "GROUP_ID_NOT_FOUND" in run("forget", f"{group}-x", "--topic", topic, code=1).stderr


def test_a_share_group_with_members_forgets_nothing(group: str, topic: str, member: ShareConsumer) -> None:
    eventually(lambda: member.poll(1.0))
    error = run("forget", group, "--topic", topic, "--execute", code=1).stderr
    assert f"error: group {group} is in use: Stable, 1 member (" in error
    assert "forgets topics only while it has no members; stop them first" in error
    assert described(group)["partitions"][0]["topic"] == topic


def test_a_consumer_group_forgets_a_topic(cluster: Cluster, topic: str) -> None:
    name, other = f"c-{topic}", f"{topic}-other"
    Admin(cluster).create_topic(other, partitions=1)
    run("reset", name, "--topic", topic, "--to", "2", "--execute")
    run("reset", name, "--topic", other, "--to", "earliest", "--execute")
    assert "dry run" in run("forget", name, "--topic", topic).stdout
    assert set(Groups(cluster).committed(name)) == {(topic, 0), (other, 0)}
    shown = run("forget", name, "--topic", topic, "--execute").stdout
    assert shown.splitlines()[1].split() == [topic, "0", "2"]
    assert set(Groups(cluster).committed(name)) == {(other, 0)}


def test_a_consumer_group_keeps_what_members_read(bootstrap: str, cluster: Cluster, topic: str) -> None:
    name, other = f"c-{topic}", f"{topic}-other"
    Admin(cluster).create_topic(other, partitions=1)
    for each in (topic, other):
        run("reset", name, "--topic", each, "--to", "latest", "--execute")
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    reader.subscribe([topic])
    try:
        eventually(lambda: reader.poll(0.1) or reader.assignment())
        result = run("forget", name, "--topic", topic, "--topic", other, "--execute", code=4)
        assert "a member of the group is subscribed to the topic" in result.stderr
        assert [line.split() for line in result.stdout.splitlines()[1:2]] == [[other, "0", "0"]]
        assert set(Groups(cluster).committed(name)) == {(topic, 0)}
    finally:
        reader.close()


def test_share_is_for_share_groups(cluster: Cluster, topic: str) -> None:
    name = f"c-{topic}"
    run("reset", name, "--topic", topic, "--to", "2", "--execute")
    refused = run("reset", name, "--share", "--topic", topic, "--to", "3", "--execute", code=1).stderr
    assert f"group {name} is not a share group" in refused
    assert "leave --share out" in refused


def test_settings_of_a_group(group: str) -> None:
    assert run("alter", group, "-c", "share.auto.offset.reset=earliest", "--dry-run").stdout == (
        f"{group} could be altered\n"
    )
    run("alter", group, "-c", "share.auto.offset.reset=earliest", "-c", "share.delivery.count.limit=3")
    eventually(lambda: settings(group)["share.delivery.count.limit"] == ("3", "group"))
    assert settings(group)["share.auto.offset.reset"] == ("earliest", "group")
    assert all(name.startswith(("share.", "errors.deadletterqueue.")) for name in settings(group))
    assert "share.session.timeout.ms" in run("describe", group, "--configs").stdout
    shown = run("describe", group).stdout
    assert "share.delivery.count.limit" in shown
    assert "share.session.timeout.ms" not in shown, "nobody has set it"
    run("alter", group, "-c", "errors.deadletterqueue.topic.name=dlq.jobs")
    eventually(lambda: "dlq.jobs" in run("describe", group).stdout)
    run("alter", group, "--reset", "share.delivery.count.limit")
    eventually(lambda: settings(group)["share.delivery.count.limit"][0] == "5")
    misspelt = run("alter", group, "-c", "share.delivery.count.limits=3", code=1).stderr
    assert "did you mean share.delivery.count.limit?" in misspelt
    assert f"cannot alter group {group}" in run("alter", group, "-c", "share.delivery.count.limit=99", code=1).stderr
    assert "nothing to alter" in run("alter", group, code=2).stderr


def settings(group: str) -> dict[str, tuple[str, str]]:
    return {each["name"]: (each["value"], each["source"]) for each in described(group, "--configs")["configs"]}
