"""`consume` over several topics, by patterns, with templates, and as a member of a group."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from typer.testing import CliRunner, Result

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.membership import Membership
from skidway.blocking_client.reader import Consumed
from skidway.blocking_client.share_groups import ShareGroups
from skidway.cli.commands import consume, produce, topic
from skidway.cli.formats import Format, Shown, Template, parse_format, writer
from skidway.cli.group_reading import GroupOptions, GroupReading
from skidway.cli.interrupts import SIGNALS, Interrupts
from skidway.cli.places import Beginning
from skidway.cli.reachable import Partials
from skidway.cli.templates import BadTemplate
from waiting import eventually

PROGRAM = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())"]
MESSAGE = Consumed("orders", 2, 41, 1_700_000_000_123, b"k1", b"v 1", [("a", b"1"), ("b", None)])


@pytest.fixture(autouse=True)
def environment(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as cluster:
        yield cluster


def create(name: str, *words: str) -> None:
    assert CliRunner().invoke(topic.app, ["create", name, *words]).exit_code == 0


def send(name: str, *lines: str, words: tuple[str, ...] = ()) -> None:
    assert CliRunner().invoke(produce.app, [name, *words], input="\n".join(lines)).exit_code == 0


def read(*words: str) -> Result:
    ended = CliRunner().invoke(consume.app, list(words))
    assert ended.exit_code == 0, ended.output
    return ended


def lines(*words: str) -> list[str]:
    return read(*words).stdout.splitlines()


def committed(cluster: Cluster, group: str) -> dict[tuple[str, int], int]:
    return {place: found.offset for place, found in Groups(cluster).committed(group).items()}


# Templates


def written(template: str, message: Consumed = MESSAGE, *, terminal: bool = False, null: bytes | None = None) -> bytes:
    return writer(parse_format(template), Shown(), terminal=terminal, null=null)(message)


def test_a_template_has_the_letters_of_kcat() -> None:
    assert written("%t %p %o %T [%h] %k=%s %K/%S 100%%\\n") == b"orders 2 41 1700000000123 [a=1,b=] k1=v 1 2/3 100%\n"
    assert written(r"%s\t\r\0\\\x41") == b"v 1\t\r\0\\A"
    assert written("größe %s") == "größe v 1".encode()


def test_null_in_a_template() -> None:
    empty = MESSAGE._replace(key=None, value=None)
    assert written("%k|%s|%K|%S", empty) == b"||-1|-1"
    assert written("%k|%s", empty, null=b"NULL") == b"NULL|NULL"


def test_a_template_cannot_let_a_message_command_the_terminal() -> None:
    nasty = MESSAGE._replace(value=b"\x1b[31m")
    assert written("%s\\n", nasty, terminal=True) == b"\\x1b[31m\n"
    assert written("%s\\n", nasty) == b"\x1b[31m\n"


@pytest.mark.parametrize("template", ["%q", "%s %", "%s\\q", "%s\\"])
def test_a_template_with_unknown_letters(template: str) -> None:
    with pytest.raises(BadTemplate, match="is not known; there are"):
        written(template)


def test_formats_and_templates_are_one_option() -> None:
    assert parse_format("json") is Format.JSON
    assert parse_format("%s") == Template("%s")
    with pytest.raises(ValueError, match="expected text, json, raw, hex, or a template"):
        parse_format("jsn")


# Several topics


def test_several_topics_and_patterns(name: str) -> None:
    for suffix in ("a", "b", "c"):
        create(f"{name}-{suffix}", "-p", "2")
        send(f"{name}-{suffix}", suffix * 3, words=("-p", "1"))
    assert sorted(lines(f"{name}-a", f"{name}-b", "-f", "%t %p %s\\n")) == [f"{name}-a 1 aaa", f"{name}-b 1 bbb"]
    assert sorted(lines(f"{name}-a", f"{name}-b", "--offset")) == [f"{name}-a\t1\t0\taaa", f"{name}-b\t1\t0\tbbb"]
    assert lines(f"{name}-a", f"{name}-a", "--offset") == ["1\t0\taaa"], "one topic named twice is one topic"
    assert sorted(lines("--regex", f"{name}-[ac]")) == ["aaa", "ccc"]
    assert sorted(lines("--regex", f"{name}-a", f"{name}-b")) == ["aaa", "bbb"]
    refused = CliRunner().invoke(consume.app, ["--regex", f"{name}-nothing.*"])
    assert (refused.exit_code, "no topic matches" in refused.stderr) == (1, True)
    broken = CliRunner().invoke(consume.app, ["--regex", "(a"])
    assert broken.exit_code == 2
    missing = CliRunner().invoke(consume.app, [f"{name}-a", f"{name}-x"])
    assert (missing.exit_code, "no such topic" in missing.stderr) == (1, True)


def test_headers_and_times_go_in_and_out(name: str) -> None:
    create(name)
    send(name, '{"value": "x", "time": "2026-01-31T12:00:00Z", "headers": {"a": "1"}}', words=("-f", "json"))
    assert lines(name, "-f", "%T %h %s\\n") == ["1769860800000 a=1 x"]
    assert lines(name, "-T", "-H") == ["2026-01-31T12:00:00.000Z\ta=1\tx"]
    send(name, "y", words=("-T", "@1769860800000", "-H", "b=2"))
    assert lines(name, "--from", "1", "-f", "%T %h %s\\n") == ["1769860800000 b=2 y"]


# Groups


def test_a_group_goes_on_where_it_stopped(name: str, cluster: Cluster) -> None:
    create(name, "-p", "1")
    send(name, "1", "2", "3", "4", "5")
    assert lines(name, "-g", name, "-n", "2") == ["1", "2"]
    assert committed(cluster, name) == {(name, 0): 2}, "exactly what was printed"
    assert lines(name, "-g", name) == ["3", "4", "5"]
    assert lines(name, "-g", name) == []
    send(name, "6")
    assert lines(name, "-g", name, "--from", "beginning") == ["6"], "--from is for partitions without a commit"
    assert Groups(cluster).describe(name).members == []


def test_a_group_that_only_looks(name: str, cluster: Cluster) -> None:
    create(name, "-p", "1")
    send(name, "1", "2")
    assert lines(name, "-g", name, "--no-commit") == ["1", "2"]
    assert committed(cluster, name) == {}
    assert lines(name, "-g", name, "--from", "-1") == ["2"]
    assert committed(cluster, name) == {(name, 0): 2}


def test_a_group_by_a_pattern(name: str) -> None:
    for suffix in ("a", "b"):
        create(f"{name}-{suffix}")
        send(f"{name}-{suffix}", suffix)
    assert sorted(lines("-r", f"{name}-.*", "-g", name, "-f", "%t=%s\\n")) == [f"{name}-a=a", f"{name}-b=b"]
    send(f"{name}-b", "more")
    assert lines("-r", f"{name}-.*", "-g", name) == ["more"]


def test_a_share_group_is_not_joined_as_a_consumer_group(name: str, cluster: Cluster) -> None:
    create(name, "-p", "1")
    ShareGroups(cluster).alter(name, {(name, 0): 0})
    refused = CliRunner().invoke(consume.app, [name, "-g", name])
    assert (refused.exit_code, "it is a share group" in refused.stderr) == (1, True), refused.output


def test_a_topic_that_is_not_there_is_not_waited_for(name: str) -> None:
    ended = CliRunner().invoke(consume.app, [name, "-g", name])
    assert (ended.exit_code, "no such topic" in ended.stderr) == (1, True)


def test_two_readers_share_the_partitions(name: str, cluster: Cluster) -> None:
    """The second takes some from the first, and gives them back when it goes; nothing is left out or printed twice."""
    create(name, "-p", "4")
    command = [*PROGRAM, "consume", name, "-g", name, "--follow", "-f", "%p %s\\n"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE)
    second = None
    groups = Groups(cluster)

    def shares() -> list[int]:
        return sorted(len(member.partitions) for member in groups.describe(name).members)

    def everything(*numbers: int) -> None:
        for partition in range(4):
            send(name, *(str(number) for number in numbers), words=("-p", str(partition)))

    assert first.stdout is not None
    try:
        eventually(lambda: name in [one.id for one in groups.all()] and shares() == [4])
        everything(1)
        assert sorted(first.stdout.readline() for _ in range(4)) == [b"%d 1\n" % number for number in range(4)]
        second = subprocess.Popen(command, stdout=subprocess.PIPE)
        eventually(lambda: shares() == [2, 2] and groups.describe(name).state == "Stable")
        everything(2)
        halves = [output.readline() for output in (first.stdout, second.stdout) if output is not None for _ in range(2)]
        assert sorted(halves) == [b"%d 2\n" % number for number in range(4)]
        second.send_signal(signal.SIGINT)
        assert second.wait(60) == 130
        eventually(lambda: shares() == [4])
        everything(3)
        assert sorted(first.stdout.readline() for _ in range(4)) == [b"%d 3\n" % number for number in range(4)]
        first.send_signal(signal.SIGINT)
        assert first.wait(60) == 130
        assert first.stdout.read() == b""
        assert committed(cluster, name) == {(name, number): 3 for number in range(4)}
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_an_interrupt_waits_until_what_was_printed_is_noted(name: str, cluster: Cluster, number: int) -> None:
    create(name, "-p", "1")
    send(name, "1", "2", "3")
    options = GroupOptions(name, [name], None, Beginning(), follow=True, commit=True, isolation_level=0)
    handlers = [signal.getsignal(each) for each in SIGNALS]
    printed: list[bytes | None] = []

    def print_all() -> None:
        for messages in GroupReading(cluster, options, Partials()).polls(None):
            printed.extend(message.value for message in messages)
            if messages:
                os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        print_all()
    assert printed == [b"1", b"2", b"3"]
    assert committed(cluster, name) == {(name, 0): 3}
    assert Groups(cluster).describe(name).members == []
    assert [signal.getsignal(each) for each in SIGNALS] == handlers


def test_the_second_interrupt_does_not_wait() -> None:
    """A pipe that nobody reads would hold it for ever."""
    reached = []

    def interrupted_twice() -> None:
        with Interrupts() as interrupts, interrupts.held():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("after the first")
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert reached == ["after the first"]


def test_a_reader_beside_a_member_with_everything(name: str, cluster: Cluster) -> None:
    """One partition, and somebody else has it: there is nothing to print, and that is said."""
    create(name, "-p", "1")
    send(name, "1")
    other = Membership(cluster, name, [name])
    other.beat()
    assert other.owned == {(name, 0)}
    over = threading.Event()

    def stay() -> None:
        while not over.wait(0.05):
            other._due_s = 0.0
            other.beat()

    staying = threading.Thread(target=stay)
    staying.start()
    try:
        ended = read(name, "-g", name)
    finally:
        over.set()
        staying.join()
    assert ended.stdout == ""
    assert f"group {name} assigned no partition" in ended.stderr
    other.leave()
    assert lines(name, "-g", name) == ["1"]


def test_an_ordinary_client_goes_on_where_the_command_stopped(name: str, bootstrap: str) -> None:
    create(name, "-p", "1")
    send(name, "1", "2", "3")
    assert lines(name, "-g", name, "-n", "1") == ["1"]
    client = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    client.subscribe([name])
    try:
        found = [eventually(lambda: client.poll(1.0)).value() for _ in range(2)]
    finally:
        client.close()
    assert found == [b"2", b"3"]
    assert lines(name, "-g", name) == [], "the client committed as well"


def test_a_member_that_was_forgotten_joins_again(name: str, cluster: Cluster) -> None:
    create(name, "-p", "1")
    revoked: list[set[tuple[str, int]]] = []
    member = Membership(cluster, name, [name], on_revoked=revoked.append)
    member.beat()
    # The coordinator loses the member behind its back.
    ghost = Membership(cluster, name, [name])
    ghost.member_id, ghost.epoch, ghost._joined = member.member_id, member.epoch, True
    ghost.leave()
    member._due_s = 0.0
    member.beat()
    assert (member.rejoined, member.owned) == (1, {(name, 0)})
    assert revoked == [{(name, 0)}]
    member.leave()


def test_json_has_the_topic_of_each(name: str) -> None:
    create(f"{name}-a")
    create(f"{name}-b")
    send(f"{name}-a", "x")
    send(f"{name}-b", "y")
    found = [json.loads(line) for line in lines(f"{name}-a", f"{name}-b", "-f", "json")]
    assert sorted((one["topic"], one["value"]) for one in found) == [(f"{name}-a", "x"), (f"{name}-b", "y")]
