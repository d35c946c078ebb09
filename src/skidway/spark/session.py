"""The SparkSession of the command line's pipelines: Java found, quiet, no web page, times in UTC.

Nothing here is needed to use the source and the sink: any session does. `build` sets what can only be set before the
JVM starts, so it has to come before any other session of the process.
"""

import os
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

import skidway
from skidway.spark import java

LOCAL = "local[*]"
LOGGING = Path(__file__).with_name("log4j2.properties")

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, is read by few and indexed by nobody.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stopTimeout": "20000",
}
# 200 shuffle partitions are for clusters: on one machine each costs a task per batch.
LOCAL_CONFIGURATION = {
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
}


def build(
    name: str,
    *,
    master: str = LOCAL,
    configuration: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> SparkSession:
    """A session, or the one there is. `configuration` wins over what is set here; `say` hears of what takes long."""
    java.ensure(say)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings(master, configuration or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def settings(master: str, configuration: Mapping[str, str]) -> dict[str, str]:
    chosen = dict(CONFIGURATION)
    if master.startswith("local[") or master == "local":
        chosen |= LOCAL_CONFIGURATION
    path = executor_path()
    if path:
        chosen["spark.executorEnv.PYTHONPATH"] = path
    chosen["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
    for key, value in configuration.items():
        chosen[key] = f"{chosen[key]} {value}" if key == "spark.driver.extraJavaOptions" else value
    return chosen


def executor_path() -> str:
    """PYTHONPATH for Python workers: this package's place first, if it runs from a checkout and is not installed."""
    sources = str(Path(str(skidway.__file__)).parents[1])
    known = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    installed = {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]}
    if sources in installed or sources in known:
        return os.pathsep.join(known)
    return os.pathsep.join([sources, *known])
