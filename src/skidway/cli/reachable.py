"""Reading what can be read of a topic: other partitions are left out and named, and the command ends as failed.

A partition cannot be read if nobody leads it (it is offline or quarantined), if its leader does not answer, or if its
records are damaged.
"""

from typing import TYPE_CHECKING

import typer

from skidway.cli.output import EXIT_FAILED, warn

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.reader import Place


class Partial:
    """What a command leaves out of a topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.left_out: list[int] = []

    def choose(self, cluster: "Cluster", wanted: list[int]) -> list[int]:
        """Those of the partitions wanted (none: of all there are) whose leader answers; an error if that is none."""
        from skidway.blocking_client.cluster import NoSuchPartition
        from skidway.blocking_client.errors import ClientError

        existing = list(cluster.topic(self.topic).partitions)
        for partition in wanted:
            if partition not in existing:
                raise NoSuchPartition(self.topic, partition, len(existing))
        chosen = wanted or existing
        unserved = cluster.unserved(self.topic, chosen)
        if unserved and len(unserved) == len(chosen):
            raise ClientError(listed(self.topic, unserved))
        for partition, reason in unserved.items():
            self.leave_out(partition, reason)
        return [partition for partition in chosen if partition not in unserved]

    def leave_out(self, partition: int, reason: str) -> None:
        if partition in self.left_out:
            return
        self.left_out.append(partition)
        warn(f"{self.topic} partition {partition} is left out: {reason}")

    def finish(self) -> None:
        """What was shown is not all."""
        if self.left_out:
            raise typer.Exit(EXIT_FAILED)


class Partials:
    """The same of several topics, by place."""

    def __init__(self) -> None:
        self._topics: dict[str, Partial] = {}

    def of(self, topic: str) -> Partial:
        return self._topics.setdefault(topic, Partial(topic))

    def leave_out(self, place: "Place", reason: str) -> None:
        self.of(place[0]).leave_out(place[1], reason)

    def tell_gone(self, place: "Place", wanted: int, start: int) -> None:
        gone = f"message {wanted}" if start == wanted + 1 else f"messages {wanted} to {start - 1}"
        warn(f"{place[0]} partition {place[1]}: {gone} deleted before they could be read; continuing at offset {start}")

    def finish(self) -> None:
        for partial in self._topics.values():
            partial.finish()


def listed(topic: str, unserved: dict[int, str]) -> str:
    """Which partitions cannot be read for which reason, in one sentence."""
    reasons: dict[str, list[int]] = {}
    for partition, reason in unserved.items():
        reasons.setdefault(reason, []).append(partition)
    return "; ".join(f"{topic} partition {', '.join(map(str, found))}: {reason}" for reason, found in reasons.items())
