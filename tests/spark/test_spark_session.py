"""The machine can run Spark at all, and its Python workers see the package under test."""

import os
from pathlib import Path
from typing import Any

import pytest

import skidway
from skidway.spark import session


def test_workers_import_the_package_under_test(spark: Any) -> None:
    def where(_: int) -> str:
        import skidway

        return str(skidway.__file__)

    seen = spark.sparkContext.parallelize(range(2), 2).map(where).collect()
    assert {Path(name) for name in seen} == {Path(str(skidway.__file__))}


def test_the_python_of_the_executors_is_the_one_that_was_asked_for(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/skidway/bin/python")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    session.build("skidway-tests", master="local[2]")
    assert os.environ["PYSPARK_PYTHON"] == "/opt/skidway/bin/python"
    # Spark would start this one on executors too.
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ
