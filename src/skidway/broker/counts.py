"""What a node counts of itself beside what its routes and logs count: connections, events, and the traffic of
partitions that are not here any more. For `metrics`."""

from skidway.broker.events import Event, InSyncChanged, LeadersElected, Report
from skidway.broker.partitions.traffic import Traffic


class Counts:
    __slots__ = (
        "connections_closed",
        "connections_opened",
        "events",
        "former_traffic",
        "in_sync_expands",
        "in_sync_shrinks",
        "leaders_elected",
    )

    def __init__(self) -> None:
        self.connections_opened = self.connections_closed = 0
        self.events: dict[type[Event], int] = {}
        """How many of each kind were reported."""
        self.leaders_elected = 0
        """As the active controller saw them."""
        self.in_sync_shrinks = self.in_sync_expands = 0
        """Of partitions that this node leads."""
        self.former_traffic = Traffic()
        """Of partitions that were deleted or have moved away: a sum over all must not go back."""

    def counted(self, report: Report) -> Report:
        """The same, with all that is reported counted."""

        def count_and_report(event: Event) -> None:
            self._count(event)
            report(event)

        return count_and_report

    def _count(self, event: Event) -> None:
        kind = type(event)
        self.events[kind] = self.events.get(kind, 0) + 1
        match event:
            case LeadersElected(changes):
                self.leaders_elected += len(changes)
            case InSyncChanged(changes):
                for change in changes:
                    before, now = set(change.before), set(change.now)
                    self.in_sync_shrinks += not before <= now
                    self.in_sync_expands += not now <= before
