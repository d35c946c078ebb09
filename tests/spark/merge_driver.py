"""A Spark driver to be killed: it merges change data into tables side by side and stands still where it is told to.

Run as a process of its own with settings as JSON: `scratch`, and `merges`, each with the `options` of a merge and a
`halt` (see `fault_driver`) or null. It ends with 0 when all is merged that is there, and when standard input ends: it
never outlives the test. The code is the product's as it is; only the table's `merge` is wrapped, here.
"""

import json
import os
import sys
import threading
from contextlib import suppress
from typing import Any

from fault_driver import AFTER, BEFORE, CONFIGURATION, FINISH_S, NOWHERE, STARVED, Halt
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from skidway.spark import session
from skidway.spark.pipelines.merge import Merge, MergeOptions
from skidway.spark.pipelines.options import ONCE


class HaltingTable:
    """A merged table whose commit can be stopped at its door and behind it."""

    def __init__(self, table: Any, halt: Halt) -> None:
        self._table = table
        self._halt = halt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def merge(self, query: str, batch: int, *more: Any) -> Any:
        self._halt.at(BEFORE, batch)
        merged = self._table.merge(query, batch, *more)
        self._halt.at(AFTER, batch)
        return merged


def begin(spark: SparkSession, one: dict[str, Any]) -> Any:
    merge = Merge(MergeOptions(**one["options"]))
    merge._table = HaltingTable(merge._table, Halt(**one["halt"]) if one["halt"] else NOWHERE)
    return merge.start(spark, ONCE)


def to_the_end(spark: SparkSession, merges: list[dict[str, Any]]) -> None:
    queries = [begin(spark.newSession(), one) for one in merges]
    while queries:
        query = queries[0]
        with suppress(StreamingQueryException):
            assert query.awaitTermination(FINISH_S), "a merge does not come to its end"
        trouble = query.exception()
        if trouble is None:
            del queries[0], merges[0]
        elif STARVED in str(trouble):
            # On a busy machine Python may start too slowly for Spark; nothing has been read then.
            queries[0] = begin(spark.newSession(), merges[0])
        else:
            raise trouble


def end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    settings = json.loads(sys.argv[1])
    threading.Thread(target=end_with_input, daemon=True).start()
    places = {
        "spark.local.dir": f"{settings['scratch']}/local",
        "spark.sql.warehouse.dir": f"{settings['scratch']}/warehouse",
    }
    spark = session.build("merges", master="local[2]", configuration=CONFIGURATION | places)
    to_the_end(spark, settings["merges"])
    print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
