"""The project that `skidway pipeline init` writes runs under Spark's own `spark-pipelines`, and runs again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_topics import new_topic, put, taken

from skidway.cli.main import main as skidway
from skidway.spark.pipelines.running import START_ATTEMPTS_MAX
from waiting import SPARK_PATIENCE_S

SOURCES = Path(__file__).parents[2] / "src"


def spark_pipelines(project: Path, *words: str, python: str | Path = sys.executable) -> None:
    script = Path(sys.executable).with_name("spark-pipelines")
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(project / "conf"),
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(script.parent), os.environ["PATH"]]),
        # Spark Connect then takes a free port, and not 15002.
        "SPARK_TESTING": "1",
    }
    done = subprocess.run(
        [script, *words], cwd=project, env=environment, capture_output=True, text=True, timeout=SPARK_PATIENCE_S
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.timeout(3 * SPARK_PATIENCE_S)
def test_the_project_runs_twice_and_goes_on_where_it_ended(bootstrap: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    topic, out = new_topic(bootstrap, "events"), new_topic(bootstrap, "shouts", 1)
    project = tmp_path / "shop"
    assert skidway(["pipeline", "init", str(project), "-t", topic, "--out", out, "--bootstrap", bootstrap]) == 0
    for number, word in enumerate([b"hello", b"again"], 1):
        put(bootstrap, topic, [(b"k", word)])
        spark_pipelines(project, "run")
        assert [record.value for record in taken(bootstrap, out)] == [b"HELLO", b"AGAIN"][:number]
        files = (project / "warehouse" / "events_by_minute").glob("*.parquet")
        assert sum(row["records"] for path in files for row in pq.read_table(path).to_pylist()) == number


def test_a_project_makes_spark_start_a_flow_as_often_as_pipeline_run_starts_its_query(tmp_path: Path) -> None:
    assert skidway(["pipeline", "init", str(tmp_path / "shop")]) == 0
    lines = (tmp_path / "shop" / "conf" / "spark-defaults.conf").read_text().splitlines()
    settings = dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    assert int(settings["spark.sql.pipelines.maxFlowRetryAttempts"]) == START_ATTEMPTS_MAX - 1


SLOW_PYTHON = """#!/bin/bash
case "$*" in *python_streaming_source_runner*)
    echo started >> {log}
    if [ $(wc -l < {log}) -le {times} ]; then sleep 12; fi
esac
exec {python} "$@"
"""


@pytest.mark.chaos
@pytest.mark.timeout(3 * SPARK_PATIENCE_S)
def test_three_slow_starts_of_python_do_not_fail_a_run(bootstrap: str, tmp_path: Path) -> None:
    """Spark gives each 10 seconds, and by default would start a flow three times in all."""
    topic, out = new_topic(bootstrap, "events"), new_topic(bootstrap, "shouts", 1)
    assert skidway(["pipeline", "init", str(tmp_path / "shop"), "-t", topic, "--out", out, "-b", bootstrap]) == 0
    put(bootstrap, topic, [(b"k", b"hello")])
    python, log = tmp_path / "slow-python", tmp_path / "starts.txt"
    python.write_text(SLOW_PYTHON.format(log=log, times=3, python=sys.executable))
    python.chmod(0o755)
    spark_pipelines(tmp_path / "shop", "run", python=python)
    assert len(log.read_text().splitlines()) >= 4
    assert [record.value for record in taken(bootstrap, out)] == [b"HELLO"]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert skidway(["pipeline", "init", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert skidway(["pipeline", "init", str(tmp_path / "new"), "--topic", "a", "--out", "a"]) == 1
    assert "never ends" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
