"""The offsets of a batch, as Spark's checkpoint has them.

Spark writes the end of a batch into `offsets/<number>` before it runs it: a line with the version, one of its own, and
one for each source, which for ours is a `Mark`. Where a batch begins is the end of the one before it; where the first
one began our source says beside its end.
"""

import json
import logging
from typing import TYPE_CHECKING

from skidway.spark.lake.positions import Place, Positions, Span, key_of
from skidway.spark.pipelines.checkpoints import local_folder
from skidway.spark.source.offsets import NO_ID
from skidway.spark.source.streaming import Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = "v1"

logger = logging.getLogger(__name__)


def span_of_batch(spark: "SparkSession", checkpoint: str, number: int) -> Span | None:
    """None, and a warning, where the checkpoint is not as this version knows it: then batch numbers alone count."""
    end = _mark(_read(spark, checkpoint, number))
    if end is None:
        logger.warning(
            "the offsets of batch %d cannot be read in the checkpoint %s: the table keeps no positions of it",
            number,
            checkpoint,
        )
        return None
    return span_of(_mark(_read(spark, checkpoint, number - 1)) if number else None, end)


def span_of(start: Mark | None, end: Mark) -> Span:
    keys = {topic: key_of(topic, end.ids.get(topic, NO_ID)) for topic, _ in end.offsets}
    ends: Positions = {(keys[topic], partition): offset for (topic, partition), offset in end.offsets.items()}
    anew = set() if start is None else set(start.made_anew(end.ids))
    known = end.began if end.began is not None else ({} if start is None else start.offsets)
    begins: dict[Place, int] = {
        (keys[topic], partition): offset
        for (topic, partition), offset in known.items()
        if topic in keys and topic not in anew and (keys[topic], partition) in ends
    }
    return Span(ends, begins, {key: topic for topic, key in keys.items()})


def _mark(text: str | None) -> Mark | None:
    lines = [] if text is None else text.splitlines()
    if len(lines) != 3 or lines[0].strip() != VERSION:
        return None
    try:
        return Mark.from_json(json.loads(lines[2]))
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def _read(spark: "SparkSession", checkpoint: str, number: int) -> str | None:
    folder = local_folder(checkpoint)
    if folder is None:
        # Spark has the jars for wherever it is.
        try:
            return "\n".join(row[0] for row in spark.read.text(f"{checkpoint}/offsets/{number}").collect())
        except Exception as error:
            logger.warning("offsets/%d: %s", number, str(error).partition("\n")[0])
            return None
    try:
        return (folder / "offsets" / str(number)).read_text()
    except OSError:
        return None
