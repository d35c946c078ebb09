"""Where an archive or a merge without a checkpoint begins: where its table ends.

The table knows each partition by its topic's id. Partitions it does not know begin as the options say; those of a topic
of which it knows others are new, and begin at their first record, as they would in a running stream.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from skidway.blocking_client.offsets import EARLIEST
from skidway.spark.lake.positions import Positions, key_of
from skidway.spark.lake.table import Table
from skidway.spark.pipelines.checkpoints import has_begun, local_folder
from skidway.spark.source.offsets import NO_ID, Found, OffsetReader, Offsets
from skidway.spark.source.options import SourceOptions
from skidway.spark.source.positions import AtOffsets, Edge, Place

START = "startingOffsets"
OTHER_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp")
SHOWN = 5

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Resumption:
    """Where each partition begins; nothing where the table knows none of them."""

    offsets: Offsets = field(default_factory=dict)
    known: list[Place] = field(default_factory=list)
    made_anew: list[str] = field(default_factory=list)
    """Topics of which the table has rows under another id."""


def resume(found: Found, has: Positions, ids: Mapping[str, list[str]], start: Mapping[Place, int] | int) -> Resumption:
    """`ids`: under which the table knows topics of these names. `start`: for topics it does not know."""
    keys = {topic: key_of(topic, found.ids.get(topic, NO_ID)) for topic, _ in found.places}
    followed = {topic for topic, partition in found.places if (keys[topic], partition) in has}
    resumption = Resumption()
    for topic in sorted({topic for topic, _ in found.places} - followed):
        if ids.get(topic) and not any(keys[topic].startswith(one) for one in ids[topic]):
            resumption.made_anew.append(topic)
    if not followed:
        return resumption
    for place in found.places:
        topic, partition = place
        position = has.get((keys[topic], partition))
        if position is not None:
            resumption.known.append(place)
            resumption.offsets[place] = position
        elif topic in followed or topic in resumption.made_anew:
            resumption.offsets[place] = EARLIEST
        else:
            resumption.offsets[place] = start if isinstance(start, int) else start.get(place, EARLIEST)
    return resumption


def starting_where_the_table_ends(
    settings: dict[str, str], table: Table, checkpoint: str, *, may_double: bool = True
) -> dict[str, str]:
    """The settings of the source, for a query that has no checkpoint; with one Spark does not ask where to begin.

    `may_double`: records that are read once more would be in the table twice.
    """
    folder = local_folder(checkpoint)
    if folder is not None and has_begun(folder):
        return settings
    options = SourceOptions.parse(settings, streaming=True)
    found = _find(options)
    has = table.positions(_keys(found).values())
    ids = {topic: table.topic_ids(topic) for topic in {topic for topic, _ in found.places}}
    resumption = resume(found, has, ids, _start(options))
    for topic in resumption.made_anew:
        logger.warning(
            "topic %s was deleted and made again since the table took records of it: it is read from its beginning,"
            " and the rows of the old one stay",
            topic,
        )
    if not resumption.offsets:
        if may_double and not resumption.made_anew and table.exists():
            logger.warning(
                "the table has rows and no positions of these topics, because an older version or another program wrote"
                " them: the archive begins as --start says, and what is there already will be there twice"
            )
        return settings
    logger.warning("there is no progress in %s: going on where the table ends (%s)", checkpoint, _told(resumption))
    kept = {name: value for name, value in settings.items() if name not in OTHER_STARTS}
    return kept | {START: json.dumps(_nested(resumption.offsets))}


def reached(settings: dict[str, str], table: Table) -> Offsets:
    """How far the table has come in each partition that there is; 0 where it does not know."""
    found = _find(SourceOptions.parse(settings, streaming=True))
    keys = _keys(found)
    has = table.positions(keys.values())
    return {place: has.get(key, 0) for place, key in keys.items()}


def _find(options: SourceOptions) -> Found:
    cluster = options.brokers.cluster()
    try:
        return OffsetReader(cluster, options.topics, options.isolation_level).find()
    finally:
        cluster.close()


def _keys(found: Found) -> dict[Place, tuple[str, int]]:
    """As tables know the partitions."""
    return {
        (topic, partition): (key_of(topic, found.ids.get(topic, NO_ID)), partition) for topic, partition in found.places
    }


def _start(options: SourceOptions) -> Mapping[Place, int] | int:
    if isinstance(options.start, Edge):
        return options.start.place
    return options.start.offsets if isinstance(options.start, AtOffsets) else EARLIEST


def _told(resumption: Resumption) -> str:
    shown = [f"{topic} partition {n} at {resumption.offsets[topic, n]}" for topic, n in resumption.known[:SHOWN]]
    more = len(resumption.known) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested
