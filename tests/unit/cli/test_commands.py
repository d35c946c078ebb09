"""The commands against a real broker, in this process and as processes with real pipes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.cli import load
from skidway.cli.commands import bench, consume, produce, topic
from waiting import eventually

PROGRAM = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())"]
APPS = {"topic": topic.app, "produce": produce.app, "consume": consume.app, "bench": bench.app}


@pytest.fixture(autouse=True)
def environment(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)


def run(command: str, *words: str, stdin: str | bytes = b"", fails: bool = False) -> Result:
    result = CliRunner().invoke(APPS[command], list(words), input=stdin)
    assert (result.exit_code != 0) == fails, result.output
    return result


def lines(command: str, *words: str) -> list[str]:
    return run(command, *words).stdout.splitlines()


def test_the_life_of_a_topic(name: str) -> None:
    run("topic", "create", name, "-p", "2", "-c", "retention.ms=1000000")
    assert name in lines("topic", "list", "--names")
    assert {"name": name, "partitions": 2}.items() <= next(
        found for found in json.loads(run("topic", "list", "--json").stdout) if found["name"] == name
    ).items()
    run("topic", "grow", name, "3")
    run("topic", "alter", name, "-c", "segment.bytes=2000000", "--reset", "retention.ms")
    (described,) = json.loads(run("topic", "describe", name, "--json").stdout)
    assert [entry["partition"] for entry in described["partitions"]] == [0, 1, 2]
    assert [(entry["name"], entry["value"], entry["source"]) for entry in described["configs"]] == [
        ("segment.bytes", "2000000", "topic")
    ]
    everything = json.loads(run("topic", "describe", name, "--configs", "--json").stdout)[0]["configs"]
    assert len(everything) > 15
    run("topic", "delete", name, "--yes")
    assert name not in lines("topic", "list", "--names")


def test_fewer_replicas_than_min_insync_replicas_are_accepted_with_a_warning(name: str) -> None:
    created = run("topic", "create", name, "-c", "min.insync.replicas=2")
    assert created.stdout == f"created {name}\n"
    assert f"{name} has 1 replica, fewer than min.insync.replicas=2" in created.stderr
    assert run("topic", "create", f"{name}-fine", "-c", "min.insync.replicas=1").stderr == ""


def test_refusals_are_told_in_one_line(name: str) -> None:
    run("topic", "create", name)
    for words in (
        ("create", name),
        ("create", f"{name}-x", "-c", "retention.ms=soon"),
        ("create", f"{name}-x", "-c", "no.such.setting=1"),
        ("create", "not a name"),
        ("grow", name, "1"),
        ("describe", f"{name}-x"),
        ("delete", f"{name}-x", "-y"),
    ):
        ended = run("topic", *words, fails=True)
        assert ended.exit_code == 1
        assert ended.stderr.startswith("error: ")
        assert len(ended.stderr.splitlines()) == 1
    assert "exists already" in run("topic", "create", name, "--if-missing").stdout


def test_deleting_asks_first(name: str) -> None:
    run("topic", "create", name)
    CliRunner().invoke(topic.app, ["delete", name], input="n\n")
    assert name in lines("topic", "list", "--names")
    CliRunner().invoke(topic.app, ["delete", name], input="y\n")
    assert name not in lines("topic", "list", "--names")


def test_lines_in_lines_out(name: str) -> None:
    run("topic", "create", name)
    sent = run("produce", name, "--json", stdin="one\ntwo\n\nthree")
    assert json.loads(sent.stdout)["partitions"] == [{"partition": 0, "first_offset": 0, "last_offset": 3}]
    assert lines("consume", name) == ["one", "two", "", "three"]
    assert lines("consume", name, "-n", "2") == ["one", "two"]
    assert lines("consume", name, "--from", "3") == ["three"]
    assert lines("consume", name, "--from", "-2") == ["", "three"]
    assert lines("consume", name, "--from", "1", "--until", "2") == ["two"]
    assert lines("consume", name, "--from", "1h") == ["one", "two", "", "three"]
    assert lines("consume", name, "--from", "end") == []
    assert lines("consume", name, "--until", "1h") == []
    assert lines("consume", name, "-F", "hex", "-n", "1") == [b"one".hex()]
    assert run("consume", name, "-F", "raw").stdout == "onetwothree"


def test_keys_headers_nulls_and_partitions(name: str) -> None:
    run("topic", "create", name, "-p", "3")
    run("produce", name, "-K", ":", "-H", "from=test", "--null", "gone", "-p", "1", stdin="a:1\nb:gone\nc:x:y\n")
    found = [json.loads(line) for line in lines("consume", name, "-F", "json", "-p", "1")]
    assert [(one["key"], one["value"]) for one in found] == [("a", "1"), ("b", None), ("c", "x:y")]
    assert all(one["headers"] == [{"name": "from", "value": "test"}] for one in found)
    assert lines("consume", name, "-p", "0", "-p", "2") == []
    assert lines("consume", name, "-k", "--offset", "-n", "1") == ["1\t0\ta\t1"]
    assert "no such partition" in run("consume", name, "-p", "3", fails=True).stderr
    assert "no such partition" in run("produce", name, "-p", "3", stdin="x\n", fails=True).stderr


def test_a_line_without_the_separator(name: str) -> None:
    run("topic", "create", name)
    assert "line 2: there is no key separator" in run("produce", name, "-K", ":", stdin="a:1\nb\n", fails=True).stderr


@pytest.mark.parametrize("codec", list(produce.Codec))
def test_one_topic_into_another_as_json(name: str, codec: produce.Codec) -> None:
    run("topic", "create", name, f"{name}-copy")
    run("produce", name, "--key", "k", "-z", codec, stdin=b"text\n\xff\xfe\n")
    exported = run("consume", name, "-F", "json").stdout
    run("produce", f"{name}-copy", "-F", "json", stdin=exported)
    copies = [json.loads(line) for line in lines("consume", f"{name}-copy", "-F", "json")]
    originals = [json.loads(line) for line in exported.splitlines()]
    assert [one | {"topic": name} for one in copies] == originals
    assert [one.get("value", one.get("value_base64")) for one in originals] == ["text", "//4="]


def test_a_file_as_one_message(name: str, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"a\nb\0c")
    run("produce", name, "--create", "-F", "raw", "-i", str(tmp_path / "picture"))
    assert run("consume", name, "-F", "raw").stdout_bytes == b"a\nb\0c"


def test_a_missing_topic_says_how_to_make_it(name: str) -> None:
    assert f"skidway topic create {name}" in run("produce", name, stdin="x\n", fails=True).stderr
    assert "no such topic" in run("consume", name, fails=True).stderr


def test_count_stops_reading_the_input(name: str) -> None:
    run("topic", "create", name)
    run("produce", name, "-n", "2", stdin="1\n2\n3\n")
    assert lines("consume", name) == ["1", "2"]


def test_following_and_typing_are_prompt(name: str, bootstrap: str) -> None:
    """A line typed into one process is printed by the other while both stay open."""
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name, partitions=1)
    reader = subprocess.Popen([*PROGRAM, "consume", name, "--follow", "--from", "0"], stdout=subprocess.PIPE)
    writer = subprocess.Popen([*PROGRAM, "produce", name], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        for word in (b"first", b"second", b"third"):
            assert writer.stdin is not None
            assert reader.stdout is not None
            writer.stdin.write(word + b"\n")
            writer.stdin.flush()
            assert reader.stdout.readline() == word + b"\n"
        assert b"sent 3 messages" in writer.communicate(timeout=60)[1]
        reader.send_signal(signal.SIGINT)
        assert reader.wait(60) == 130
    finally:
        for process in (reader, writer):
            process.kill()
            process.communicate()


def test_a_reader_that_goes_away_is_no_error(name: str) -> None:
    run("topic", "create", name)
    run("produce", name, stdin="x" * 100 + "\n" + "\n".join("y" * 200 for _ in range(20_000)))
    command = f"{sys.executable} -c 'import sys; from skidway.cli.main import main; sys.exit(main())' consume {name}"
    piped = subprocess.run(
        ["bash", "-c", f"{command} | head -1; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, env=os.environ
    )
    assert piped.stdout.splitlines() == ["x" * 100, "0"]
    assert piped.stderr == ""


def end_offsets(name: str) -> int:
    (described,) = json.loads(run("topic", "describe", name, "--json").stdout)
    return sum(entry["end_offset"] for entry in described["partitions"])


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_bench_produce_counts_what_it_sent(name: str, acks: str) -> None:
    run("topic", "create", name, "-p", "2")
    words = ("-n", "5000", "-s", "50", "--batch", "4k", "--acks", acks, "--connections", "3", "-t", name, "--json")
    report = json.loads(run("bench", "produce", *words).stdout)
    assert report["messages"] == 5000
    # Without acks=all the last batches may not be synced, and so not be visible, when the command ends.
    eventually(lambda: end_offsets(name) == report["messages"])
    assert report["messages_per_second"] > 0
    assert bool(report["latency_ms"]) == (acks != "0")


def test_bench_consume_fills_reads_and_cleans_up() -> None:
    before = set(lines("topic", "list", "--names"))
    report = json.loads(run("bench", "consume", "-n", "3000", "--batch", "2k", "--connections", "2", "--json").stdout)
    assert report["messages"] == 3000
    assert not [
        left for left in set(lines("topic", "list", "--names")) - set(before) if left.startswith("skidway-bench")
    ]


def test_bench_consume_fills_with_what_all_replicas_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """After acks=1 the end that is asked for next may lie before what was sent: it is as far as all replicas are."""
    asked: list[int] = []
    run_all = load.run_all

    def watched(loads: list[load.Load], *more: Any) -> list[load.Tally]:
        asked.extend(one.acks for one in loads if isinstance(one, load.ProduceLoad))
        return run_all(loads, *more)

    monkeypatch.setattr(load, "run_all", watched)
    run("bench", "consume", "-n", "100", "--json")
    assert set(asked) == {-1}


def test_bench_latency_hears_every_message() -> None:
    report = json.loads(run("bench", "latency", "--rate", "200", "--seconds", "0.5", "-e", "--json").stdout)
    assert report["messages"] == 100
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["max"]
    assert report["end_to_end_ms"]["p50"] > 0
