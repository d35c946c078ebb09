"""What a log has written and no sync has proven yet: bytes of segments, names in its directory, files beside it.

It hands out the tickets that prove it and takes them back, in whatever order they end. One that was begun before the
log was cut is void: what it proved may be gone.
"""

from skidway.log.durability.sync import Syncable, SyncHistory, SyncTicket
from skidway.log.segment import Segment
from skidway.ports import Disk

SEGMENTS_EARLY = 4
"""With more segments than this waiting, they are synced although nobody asked for it."""
SEGMENTS_MAX = 1_000
"""With so many waiting, no further segment is begun: each one holds a descriptor until it is synced."""


class Unsynced:
    __slots__ = (
        "_begun_offset",
        "_beside",
        "_directory",
        "_disk",
        "_names_begun",
        "_names_synced",
        "_parent_synced",
        "generation",
        "history",
        "names",
        "segments",
    )

    def __init__(self, disk: Disk, directory: str, segments: list[Segment], synced_offset: int) -> None:
        self._disk = disk
        self._directory = directory
        self.segments = segments
        """Those that have more bytes than were synced."""
        self._begun_offset = synced_offset
        # Names made in the directory, counted: made, part of a begun ticket, durable.
        self.names = self._names_begun = self._names_synced = 0
        self._parent_synced = True
        self._beside: list[Syncable] = []
        self.generation = 0
        self.history = SyncHistory()

    @property
    def is_crowded(self) -> bool:
        """Whether so many segments wait that they should be synced soon."""
        count = len(self.segments)
        return count > 1 and (count > SEGMENTS_EARLY or self._disk.files_short)

    @property
    def is_full(self) -> bool:
        return len(self.segments) >= SEGMENTS_MAX

    def mark_names_unsynced(self, *, parent: bool) -> None:
        """The names of files that were found or just created may be lost; with `parent`, that of the directory too."""
        self.names += 1
        self._parent_synced = not parent

    def add_beside(self, file: Syncable) -> None:
        """A new file beside the log that must be durable with the next append."""
        self._beside.append(file)
        self.names += 1

    def waits(self, end_offset: int) -> bool:
        """Whether `begin` has something to do for a log that ends there."""
        return end_offset > self._begun_offset or self.names > self._names_begun

    def begin(self, end_offset: int) -> SyncTicket | None:
        """What makes everything so far durable; None when that is done or another ticket has begun it."""
        if end_offset <= self._begun_offset and self.names <= self._names_begun:
            return None
        ticket = self.ticket(end_offset)
        self._begun_offset = end_offset
        self._names_begun = self.names
        return ticket

    def ticket(self, end_offset: int) -> SyncTicket:
        ticket = SyncTicket(self._disk, self._directory, end_offset, self.history)
        ticket.generation = self.generation
        ticket.names = self.names
        # Whatever an earlier ticket has not finished yet is synced again: tickets may finish in any order.
        ticket.segments = [(segment, segment.size, segment.file) for segment in self.segments]
        if self.names > self._names_synced:
            ticket.files = self._beside
            ticket.directories = [self._directory]
            if not self._parent_synced:
                ticket.directories.append(self._directory.rpartition("/")[0])
        return ticket

    def finish(self, ticket: SyncTicket) -> bool:
        """Its `run` returned. False when it is void."""
        if ticket.generation != self.generation:
            return False
        for segment, size, _ in ticket.segments:
            segment.synced_size = max(segment.synced_size, size)
        self.segments = [segment for segment in self.segments if segment.synced_size < segment.size]
        self._names_synced = max(self._names_synced, ticket.names)
        self._names_begun = max(self._names_begun, ticket.names)
        self._begun_offset = max(self._begun_offset, ticket.offset)
        if self._names_synced:
            self._parent_synced = True
            self._beside = []
        return True

    def give_back(self, ticket: SyncTicket, synced_offset: int) -> None:
        """It could not run. What it was for is to be begun again."""
        if ticket.generation == self.generation:
            self._begun_offset = synced_offset
            self._names_begun = self._names_synced

    def sync_beside(self) -> None:
        """On the owner's thread: the log can be found after a crash, as the names in its directory are durable."""
        for file in self._beside:
            file.sync()
        if not self._parent_synced:
            self._disk.sync_directory(self._directory.rpartition("/")[0])
        self._names_synced, self._parent_synced, self._beside = self.names, True, []

    def cut(self, segments: list[Segment], synced_offset: int) -> None:
        """The log has these segments left. Tickets under way are void."""
        self.generation += 1
        self._begun_offset = synced_offset
        self._names_begun = self._names_synced
        self.segments = [s for s in self.segments if s in segments and s.synced_size < s.size]

    def forget(self, segment: Segment) -> None:
        if segment in self.segments:
            self.segments.remove(segment)
