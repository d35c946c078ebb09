"""Share groups as `skidway group describe` shows them: how far they are, what is locked, what came back how often."""

import time
from typing import TYPE_CHECKING, Any

import typer

from skidway.cli.output import count_of, harmless, print_table, warn

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.groups import Group
    from skidway.blocking_client.lag import Lag
    from skidway.blocking_client.share_groups import Deliveries, ShareOffset

COLUMNS = ("topic", "partition", "start", "end", "lag", "locked", "deliveries", "oldest", "members")


def share_document(cluster: "Cluster", found: "Group") -> dict[str, Any]:
    """What is special about a share group, for the document of any group."""
    from skidway.blocking_client.groups import Committed
    from skidway.blocking_client.lag import measure
    from skidway.blocking_client.share_groups import ShareGroups

    shares = ShareGroups(cluster)
    offsets = shares.offsets(found.id)
    # Behind in time is the age of the message at the start offset, as for a committed one.
    lags = measure(cluster, None, {place: Committed(offset.start) for place, offset in offsets.items()})
    known = [(lag.topic, lag.partition) for lag in lags if lag.problem is None]
    deliveries = shares.deliveries(found.id, known)
    now_ms = time.time_ns() // 1_000_000
    partitions = [
        _partition(lag, offsets[lag.topic, lag.partition], deliveries.get((lag.topic, lag.partition)), found, now_ms)
        for lag in lags
    ]
    told = [entry["locked"] for entry in partitions if entry["locked"] is not None]
    return {
        "lag": sum(entry["lag"] or 0 for entry in partitions),
        "locked": sum(told) if told else None,
        "behind_s": max((entry["behind_s"] or 0.0 for entry in partitions), default=0.0),
        "partitions": partitions,
    }


def _partition(
    lag: "Lag", offset: "ShareOffset", deliveries: "Deliveries | None", found: "Group", now_ms: int
) -> dict[str, Any]:
    counts = None if deliveries is None else deliveries.counts
    return {
        "topic": lag.topic,
        "partition": lag.partition,
        "members": sum((lag.topic, lag.partition) in member.partitions for member in found.members),
        "start_offset": offset.start,
        "end": lag.end,
        "lag": offset.lag if lag.problem is None else None,
        "locked": None if deliveries is None else deliveries.locked,
        "settling": None if deliveries is None else deliveries.settling,
        "waiting_again": None if deliveries is None else deliveries.waiting,
        "deliveries": None if counts is None else {str(count): number for count, number in counts.items()},
        "behind_s": lag.seconds(now_ms),
        "oldest_ms": lag.first_unconsumed_ms,
        "deleted_unread": lag.deleted,
        "problem": lag.problem,
    }


def print_share_group(document: dict[str, Any], age: Any) -> None:
    members = document["members"]
    first = (document["group"], document["state"], document["type"], document["assignor"])
    typer.echo(harmless("  ".join(first)).rstrip())
    locked = "" if document["locked"] is None else f", {document['locked']} locked"
    oldest = f", oldest {age(document['behind_s'])}" if document["lag"] else ""
    parts = f"{count_of(len(members), 'member')}, lag {document['lag']}{locked}{oldest}"
    typer.echo(f"{parts}, coordinator {document['coordinator']}")
    if document["partitions"]:
        rows = [_row(entry, age) for entry in document["partitions"]]
        print_table(COLUMNS, rows, right=[column for column in COLUMNS if column not in ("topic", "deliveries")])
    if members:
        columns = ("member", "client", "host", "partitions")
        print_table(columns, [tuple(member[each] for each in columns) for member in members], right=("partitions",))
    for entry in document["partitions"]:
        if entry["deleted_unread"]:
            gone = count_of(entry["deleted_unread"], "message")
            warn(f"{entry['topic']} partition {entry['partition']}: {gone} deleted before the group settled them")
        if entry["problem"]:
            warn(f"{entry['topic']} partition {entry['partition']}: {entry['problem']}")


def _row(entry: dict[str, Any], age: Any) -> tuple[Any, ...]:
    counts = entry["deliveries"]
    shown = {
        **entry,
        "start": entry["start_offset"],
        "deliveries": None if not counts else " ".join(f"{count}:{number}" for count, number in counts.items()),
        "oldest": age(entry["behind_s"]),
    }
    return tuple("-" if shown[column] is None else shown[column] for column in COLUMNS)
