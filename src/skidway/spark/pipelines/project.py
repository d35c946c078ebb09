"""`skidway pipeline init`: a small project for Spark's Declarative Pipelines, over a topic, to run and to change.

A streaming table of the topic's records, a materialized view over it, and a sink that writes to another topic.
`spark-pipelines run` in the folder, with SPARK_CONF_DIR at its `conf`, brings all of them up to date; run it again,
from cron or a scheduler, and it goes on where it ended. For something that runs all the time, `skidway pipeline run`
is the better choice.
"""

import json
from pathlib import Path

from skidway.spark.pipelines.options import BadPipeline
from skidway.spark.pipelines.running import START_ATTEMPTS_MAX

SPEC = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
  spark.sql.shuffle.partitions: "4"
"""

# What has to be known when Spark starts; a spec may not say it. With Spark's own in-memory catalog a second run would
# not know the first one's tables and stumble over their files.
DEFAULTS = """\
spark.sql.catalogImplementation  hive
spark.sql.warehouse.dir          {warehouse}
spark.hadoop.javax.jdo.option.ConnectionURL  jdbc:derby:;databaseName={metastore};create=true
spark.ui.enabled                 false
# On a busy machine Spark may give up on a Python process that takes more than 10 seconds to start, and fails the flow.
spark.sql.pipelines.maxFlowRetryAttempts  {retries}
"""

TRANSFORMATIONS = '''\
"""From a topic to a table, a view over it, and another topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark: SparkSession  # Given by spark-pipelines.

BOOTSTRAP = {bootstrap}
TOPIC = {topic}
OUT = {out}
DELIVERY = "exactly_once"  # Brokers of Apache Kafka can do "at_least_once" only.


@dp.table
def events() -> DataFrame:
    """Every record of the topic, once."""
    records = (
        spark.readStream.format("skidway")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    return records.select(
        sf.col("key").cast("string").alias("key"),
        sf.col("value").cast("string").alias("value"),
        "topic",
        "partition",
        "offset",
        "timestamp",
    )


@dp.materialized_view
def events_by_minute() -> DataFrame:
    """Records per minute and partition. Each run computes all of it."""
    minute = sf.date_trunc("minute", "timestamp").alias("minute")
    return spark.read.table("events").groupBy(minute, "partition").agg(sf.count("*").alias("records"))


dp.create_sink("out", "skidway", {{"kafka.bootstrap.servers": BOOTSTRAP, "topic": OUT, "delivery": DELIVERY}})


@dp.append_flow(target="out")
def shout() -> DataFrame:
    """Change this: what goes to the other topic."""
    return spark.readStream.table("events").select("key", sf.upper("value").alias("value"))
'''

README = """\
# {name}

    cd {name}
    export SPARK_CONF_DIR=$PWD/conf
    spark-pipelines dry-run   # checks the project
    spark-pipelines run       # reads what is new, and updates the tables and the topic

With the settings in `conf/`, Spark remembers the tables between runs (a Hive catalog in `metastore/`). Without them the
second run fails.

The project reads `{topic}` from {bootstrap} and writes to `{out}`. It keeps tables in `warehouse/` and progress in
`storage/`. `spark-pipelines run --full-refresh-all` starts over from the start of the topic. To change what it does,
edit `transformations/`.

Spark retries a flow that fails: {retries} times, as `conf/spark-defaults.conf` sets it, first after 5 seconds and then
after twice as long each time. That helps when the machine is so busy that Spark's Python needs more than 10 seconds to
start (`Python worker failed to connect back`). If a run fails nevertheless, start it again when the machine is less
busy: it continues where the last run ended.
"""


def create(folder: Path, *, bootstrap: str, topic: str, out: str) -> list[Path]:
    """Write the project into a new folder. Answers its files."""
    if topic == out:
        raise BadPipeline(f"{topic} would be both read and written, which never ends; write to another topic")
    if folder.exists() and any(folder.iterdir()):
        raise BadPipeline(f"{folder} is not empty; name a new folder")
    root = folder.absolute()
    name = root.name
    for part in ("transformations", "storage", "conf"):
        (root / part).mkdir(parents=True, exist_ok=True)
    # JSON text is YAML text and Python text too: whatever is in a path or a name stays one value.
    spec = SPEC.format(
        name=json.dumps(name),
        storage=json.dumps(f"file://{root / 'storage'}"),
    )
    defaults = DEFAULTS.format(
        warehouse=f"file://{root / 'warehouse'}", metastore=root / "metastore", retries=START_ATTEMPTS_MAX - 1
    )
    code = TRANSFORMATIONS.format(bootstrap=json.dumps(bootstrap), topic=json.dumps(topic), out=json.dumps(out))
    contents = {
        root / "spark-pipeline.yml": spec,
        root / "conf" / "spark-defaults.conf": defaults,
        root / "transformations" / "events.py": code,
        root / "README.md": README.format(
            name=name, topic=topic, bootstrap=bootstrap, out=out, retries=START_ATTEMPTS_MAX - 1
        ),
    }
    for path, text in contents.items():
        path.write_text(text)
    return list(contents)
