"""archive into an object store, by the command and Spark as they are: no jar of Hadoop's for it."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pipeline_topics import new_topic, put
from s3_server import BUCKET, s3_server, use

from skidway.spark.lake import Target, open_table
from waiting import SPARK_PATIENCE_S

SOURCES = Path(__file__).parents[2] / "src"
SPARK = ("--conf", "spark.driver.memory=512m", "--master", "local[2]")


def test_a_delta_table_in_an_object_store(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(bootstrap, "objects")
    with s3_server() as address:
        use(monkeypatch, address)
        path = f"s3a://{BUCKET}/orders"
        words = ["run", "archive", "-t", topic, "--bootstrap", bootstrap, "--path", path, "--format", "delta", "--once"]
        words += ["--schema", "n int, at timestamp", "--event-time", "at", "--checkpoint", "checkpoint", *SPARK]
        for start in (0, 50):
            rows = [{"n": n, "at": "2026-01-31T12:00:10Z"} if n % 5 else b"broken" for n in range(start, start + 50)]
            put(bootstrap, topic, rows)
            done = subprocess.run(
                [sys.executable, "-m", "skidway", "pipeline", *words],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])},
                capture_output=True,
                text=True,
                timeout=SPARK_PATIENCE_S,
            )
            assert done.returncode == 0, done.stderr
            assert "hush-hush" not in done.stdout + done.stderr + (tmp_path / "checkpoint/status.json").read_text()
        found = open_table(Target(path, "delta", ["topic", "date", "hour"])).read()
        rejected = open_table(Target(f"{path}-rejected", "delta", ["topic"])).read()
    assert found is not None
    assert rejected is not None
    assert Counter(row["n"] for row in found.column("value").to_pylist()) == Counter(n for n in range(100) if n % 5)
    assert {str(day) for day in found.column("date").to_pylist()} == {"2026-01-31"}
    assert rejected.num_rows == 20
