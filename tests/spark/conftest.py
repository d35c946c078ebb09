"""One Spark session and one broker for all tests of this folder: a session takes seconds to start."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skidway.testing import Broker
from waiting import SPARK_PATIENCE_S

SOURCES = Path(__file__).parents[2] / "src"
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# Spark's JVMs live for minutes here: what a second compiler and threads for garbage cost, they never earn back. They
# take half the CPU time so.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

pyspark_sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")


STARTS_SPARK = (
    "test_faults_once",
    "test_faults_short",
    "test_faults_matrix",
    "test_local_cluster",
    "test_merge_kills",
    "test_pipeline_command",
    "test_pipeline_project",
    "test_spark_java",
    "test_spark_unactivated",
    "test_speculation",
    "test_two_drivers_spark",
    "test_archive_objects",
)
"""Modules whose tests start Spark in processes of their own."""


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs Spark is in one of three groups, each run one after another: many Sparks at once would only wait for
    each other's cores. All else can go beside other tests."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if group := group_of(item):
            item.add_marker("spark")
            item.add_marker(pytest.mark.xdist_group(group))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(2 * SPARK_PATIENCE_S))


def group_of(item: pytest.Item) -> str | None:
    """Tests that share a session, in two groups of about the same length, and those that start Spark themselves."""
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark-pipelines" if item.path.stem.startswith(("test_pipeline", "test_guide")) else "spark-tables"
    return "spark-processes" if item.path.stem in STARTS_SPARK else None


@pytest.fixture(scope="session", autouse=True)
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Spark without pyspark.zip, so that its Python processes import the installed pyspark, which has bytecode.

    From the zip they compile all they import each time they start, which takes three times as much CPU. Spark gives
    some of them only 10 seconds to start.
    """
    real = Path(pyspark_sql.__file__).parents[1]
    home = tmp_path_factory.mktemp("spark-home")
    for name in ("bin", "jars"):
        (home / name).symlink_to(real / name)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, spark_home: Path) -> "Iterator[pyspark_sql.SparkSession]":
    from skidway.spark import java

    java.ensure(print)
    scratch = tmp_path_factory.mktemp("spark")
    session = (
        pyspark_sql.SparkSession.builder.master("local[2]")
        .appName("skidway-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def commands_in_session(
    spark: "pyspark_sql.SparkSession", monkeypatch: pytest.MonkeyPatch
) -> "Iterator[pyspark_sql.SparkSession]":
    """`skidway pipeline run`, called in this process, uses the shared session. One of its own, as a user has it, is
    tested with the command as a process."""
    from skidway.cli.commands import pipeline

    @contextmanager
    def shared(name: str, master: str, settings: dict[str, str]) -> "Iterator[pyspark_sql.SparkSession]":
        yield spark

    monkeypatch.setattr(pipeline, "_spark", shared)
    yield spark
    for query in spark.streams.active:
        query.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(flush="os") as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap
