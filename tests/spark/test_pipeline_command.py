"""`skidway pipeline`: as a process of its own, with a real broker, stopped by signals, its status read from outside."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pipeline_topics import new_name, new_topic, put, taken
from prometheus_client.parser import text_string_to_metric_families

from skidway.cli.main import main as skidway
from skidway.spark.pipelines import status as status_of
from skidway.spark.pipelines.options import DEFAULT_FOLDER, BadPipeline, from_texts, labelled, pairs, parse_duration_ms
from skidway.spark.pipelines.running import in_one_line
from skidway.spark.pipelines.status import Status
from skidway.testing.free_ports import free_ports
from waiting import SPARK_PATIENCE_S, eventually

SOURCES = Path(__file__).parents[2] / "src"
MEMORY = ("--conf", "spark.driver.memory=512m", "--master", "local[1]")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "skidway", "pipeline", *words]


@pytest.mark.usefixtures("commands_in_session")
def test_once_runs_to_the_end_and_says_what_it_did(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(bootstrap, "orders")
    put(bootstrap, topic, [{"n": 1}, {"n": 2}, b"broken"])
    config = tmp_path / "archive.toml"
    config.write_text(f'topic = "{topic}"\nschema = "n int"\npartition-by = []\n')
    words = ["run", "archive", "--config", str(config), "--bootstrap", bootstrap, "--path", "lake/orders", "--once"]
    monkeypatch.chdir(tmp_path)
    assert skidway(["pipeline", *words]) == 0
    assert capsys.readouterr().out.strip() == (
        "archive done: 3 records in 1 batch, rejected 1, rejected (the value is not a JSON object) 1"
    )
    [(folder, status)] = status_of.read_all(tmp_path / DEFAULT_FOLDER)
    assert (folder.name, status.state, status.records, status.lag) == ("archive", "done", 3, 0)
    assert list((tmp_path / "lake" / "orders").glob("part-*.parquet"))
    assert list((tmp_path / "lake" / "orders-rejected").rglob("part-*.parquet"))


def test_a_resident_pipeline_follows_and_stops_cleanly(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, out = new_topic(bootstrap, "numbers"), new_name("even")
    put(bootstrap, topic, [b"1", b"2"])
    words = ["run", "route", "-t", topic, "--bootstrap", bootstrap, "--parse", "none", "--trigger", "200ms"]
    words += ["--route", f"{out}: cast(value AS int) % 2 = 0", "--checkpoint", str(tmp_path / "checkpoint"), *MEMORY]
    port = free_ports()
    words += ["--name", "evens", "--metrics", f"127.0.0.1:{port}"]
    with subprocess.Popen(command(*words), env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: _batches(tmp_path) >= 1 or process.poll() is not None, SPARK_PATIENCE_S)
            put(bootstrap, topic, [b"4", b"5"])
            eventually(lambda: _records(tmp_path) >= 4 or process.poll() is not None, SPARK_PATIENCE_S)
            assert skidway(["pipeline", "status", str(tmp_path)]) == 0
            told = capsys.readouterr().out
            assert "evens" in told
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
            [records] = families["skidway_pipeline_records"].samples
            assert (records.labels, records.value) == ({"pipeline": "evens", "kind": "route"}, 4)
            assert "running" in told
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=SPARK_PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert output.startswith("route stopped: 4 records")
    assert sorted(record.value or b"" for record in taken(bootstrap, out)) == [b"2", b"4"]


def _status(folder: Path) -> Status | None:
    return status_of.read(folder / "checkpoint")


def _batches(folder: Path) -> int:
    status = _status(folder)
    return status.batches if status else 0


def _records(folder: Path) -> int:
    status = _status(folder)
    return status.records if status else 0


def test_a_pipeline_that_was_killed_has_died(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    status_of.write(Status("archive", ["orders"], pid=process.pid, host=socket.gethostname()), tmp_path / "archive")
    failed = Status("dedupe", ["clicks"], state="failed", error="no broker answers", counts={"dead": 7})
    status_of.write(failed, tmp_path / "dedupe")
    assert skidway(["pipeline", "status", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["pipeline"], one["state"]) for one in told] == [("archive", "died"), ("dedupe", "failed")]
    assert skidway(["pipeline", "status", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "no broker answers" in printed
    assert "dead 7" in printed


def test_a_status_file_of_nonsense_is_no_status(tmp_path: Path) -> None:
    for content in (b"", b"[1]", b'{"pipeline": ', b'{"state": "running"}', b"\xff"):
        (tmp_path / "status.json").write_bytes(content)
        assert status_of.read(tmp_path) is None


def test_what_is_wrong_is_told_before_spark_starts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    cases: dict[tuple[str, ...], str] = {
        ("run", "nothing"): "skidway pipeline run has no command nothing; its commands are archive",
        ("run", "archive", "--topic", "t"): "missing: path",
        ("run", "dedupe", "-t", "a", "--to-topic", "a", "--id", "x"): "never ends",
        ("run", "archive", "-t", "a", "--path", "x", "--trigger", "soon"): "'soon' is not a duration",
        ("run", "archive", "-t", "a", "--path", "x", "--format", "orc"): "format must be one of parquet",
        ("run", "archive", "-t", "a", "--path", "x", "--name", "a/b"): "'a/b' is not a name",
        ("run", "archive", "-t", "a", "--path", "x", "--schema", "n int", "--drop", "m"): "no field m to mask",
        ("run", "archive", "-t", "a", "--path", "x", "--redo-rejected"): "redo_rejected needs a schema",
        ("run", "archive", "-t", "a", "--path", path, "--metrics", "nowhere"): "'nowhere' is not an address",
    }
    for words, message in cases.items():
        assert skidway(["pipeline", *words]) == 2
        assert message in capsys.readouterr().err
    config = tmp_path / "bad.toml"
    config.write_text("topics = 3\n")
    assert skidway(["pipeline", "run", "archive", "--config", str(config)]) == 2
    assert "no option topics; the options are" in capsys.readouterr().err


def test_every_pipeline_tells_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert skidway(["pipeline", "list", "--json"]) == 0
    names = [one["name"] for one in json.loads(capsys.readouterr().out)]
    assert names == ["archive", "merge", "aggregate", "dedupe", "route", "replay", "insights"]
    for name in names:
        assert skidway(["pipeline", "run", name, "--help"]) == 0
        assert "--topic" in capsys.readouterr().out


def test_without_pyspark_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('No module named pyspark', name='pyspark')\n")
    path = os.pathsep.join([str(tmp_path), str(SOURCES)])
    words = command("run", "archive", "--topic", "t", "--path", "x")
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=SPARK_PATIENCE_S
    )
    assert done.returncode == 1
    assert "pip install 'skidway[spark]'" in done.stderr
    listed = subprocess.run(
        command("list"), env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=SPARK_PATIENCE_S
    )
    assert listed.returncode == 0


def test_texts_of_options() -> None:
    assert [parse_duration_ms(text) for text in ("500ms", "1s", "2 m", "1h")] == [500, 1000, 120_000, 3_600_000]
    assert labelled("big: amount > 1 AND x = ':'", "route") == ("big", "amount > 1 AND x = ':'")
    assert labelled("rest", "route") == ("rest", "")
    assert pairs(["a=b=c"], "set") == {"a": "b=c"}
    for wrong in ("", "a b: c"):
        with pytest.raises(BadPipeline, match="is not NAME: SQL"):
            labelled(wrong, "route")


def test_types_of_options_are_checked() -> None:
    from skidway.spark.pipelines.insights import InsightsOptions

    with pytest.raises(BadPipeline, match="keys must be a whole number"):
        from_texts(InsightsOptions, {"topic": "t", "path": "x", "keys": "many"})
    assert from_texts(InsightsOptions, {"topic": "t", "path": "x", "max-records": 5}).max_records == 5


def test_an_error_of_spark_is_told_in_one_line() -> None:
    error: Any = Exception(
        "[STREAM_FAILED] Query terminated\n\nskidway.blocking_client.errors.ConnectionLost: no broker answers"
        "\n\tat org.apache.spark.Something\nJVM stacktrace: many"
    )
    assert in_one_line(error) == "skidway.blocking_client.errors.ConnectionLost: no broker answers"
    assert in_one_line(ValueError()) == "ValueError"
