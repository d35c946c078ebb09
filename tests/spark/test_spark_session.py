"""The machine can run Spark at all, and its Python workers see the package under test."""

from pathlib import Path
from typing import Any

import skidway


def test_workers_import_the_package_under_test(spark: Any) -> None:
    def where(_: int) -> str:
        import skidway

        return str(skidway.__file__)

    seen = spark.sparkContext.parallelize(range(2), 2).map(where).collect()
    assert {Path(name) for name in seen} == {Path(str(skidway.__file__))}
