"""A Spark driver with two executors in processes of their own: `local_cluster_job.py BOOTSTRAP TOPIC COUNT`.

Writes COUNT rows to TOPIC, reads them back, and prints one line of JSON: what was read and by how many executors.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from skidway.spark.session import build


def executors_seen(spark: SparkSession, rows: Any) -> int:
    """By the rows' own tasks: each executor is a process tree with a Python daemon of its own."""

    def daemons(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"daemon": [os.getppid()], "rows": [batch.num_rows]})

    seen = rows.mapInArrow(daemons, "daemon long, rows long").collect()
    return len({row.daemon for row in seen if row.rows})


def main(bootstrap: str, topic: str, count: int) -> None:
    spark = build(
        "skidway-local-cluster",
        master="local-cluster[2,1,1024]",
        configuration={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    # Both must be there, or the first to come might do it all.
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) < 3:
        spark.sparkContext.parallelize(range(2), 2).count()
    brokers = {"kafka.bootstrap.servers": bootstrap}
    made = spark.range(0, count, 1, 4).selectExpr("cast(string(id) as binary) as key", "concat('value ', id) as value")
    made.write.format("skidway").mode("append").options(**brokers).option("topic", topic).save()
    rows = spark.read.format("skidway").options(**brokers).option("subscribe", topic).load()
    found = rows.selectExpr("string(key) as key", "string(value) as value").collect()
    result = {"rows": sorted((int(row.key), row.value) for row in found), "executors": executors_seen(spark, rows)}
    print(json.dumps(result), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
