"""`import skidway.spark` after a session has started: its Python cannot be changed any more, so the import warns."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# A session as pyspark remembers it; none has to run for this.
LATE = """
import types
import pyspark
pyspark.SparkContext._active_spark_context = types.SimpleNamespace(pythonExec="python3")
import skidway.spark
"""
EARLY = "import pyspark, skidway.spark"


def warned(code: str, folder: Path, **variables: str) -> str:
    left_out = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin", **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def another(tmp_path: Path) -> Path:
    """A folder with a `python3` that is not this one."""
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    return tmp_path


def test_a_late_import_says_which_python_spark_runs_and_what_to_do(another: Path) -> None:
    told = warned(LATE, another)
    assert f"Spark runs {another}/python3 and not {sys.executable}" in told
    assert "import skidway.spark before the first session, or set PYSPARK_PYTHON" in told


def test_nothing_is_said_where_nothing_is_wrong(another: Path, tmp_path: Path) -> None:
    assert warned(EARLY, another) == ""
    assert warned(LATE, another, PYSPARK_PYTHON="/opt/cluster/python") == ""
    activated = tmp_path / "activated"
    activated.mkdir()
    assert warned(LATE.replace('"python3"', repr(sys.executable)), activated) == ""
