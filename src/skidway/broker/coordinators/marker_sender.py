"""Sends the markers that transaction coordinators of this node ask for, until every partition has answered.

Each marker goes to whoever leads its partition then: into the log if that is this node, else with WriteTxnMarkers.
Markers of many transactions share a request, and few requests are under way to one node. A partition that does not
take its marker gets it again after a pause that grows. One whose topic is gone needs none. Two answers say that
there is a marker of somebody else already: of a later coordinator (TRANSACTION_COORDINATOR_FENCED), or in a later epoch
(INVALID_PRODUCER_EPOCH). A coordinator that has been replaced stops by itself. One that has not tries again now and
then: partitions forget producers after a while, and topics are deleted. Kafka gives up until the coordinator moves.

Requests are numbered. One that was given up and arrives after a later one, from a connection that is closed, could end
the next transaction of a producer whose epoch does not grow. Its receiver writes nothing (`MarkerWriter.is_late`). The
later one may have gone to another node, if the partition's leader changed meanwhile. So each marker names the epoch in
which its receiver leads, and a leader of a later epoch does not write it.

What is asked of this node in one go is worked on in steps, in the order in which it was asked. The markers of a step
that go into logs here are written in one pass, and the coordinator hears of all of them at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, islice

from skidway.broker.cluster.peers import Peers
from skidway.broker.coordinators.host import Coordinator
from skidway.broker.coordinators.markers import MarkerWriter
from skidway.broker.coordinators.news import MarkerRefused, MarkersLate
from skidway.broker.world import World
from skidway.errors import ErrorCode, ProtocolError
from skidway.metadata.image import Image
from skidway.records.control import EndTransaction
from skidway.runtime.log_store import Marker, Producer
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import MarkersWritten, WriteMarkers
from skidway.transactions.records import BUMPING_VERSION, TransactionRecord
from skidway.transactions.transaction import Place
from skidway.wire.message import Message
from skidway.wire.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

OneCoordinator = Coordinator[TransactionCoordinator, TransactionRecord]
Answer = Callable[[ProtocolError | None], None]

CHANNEL = "markers"
TIMEOUT_MS = 4_000
"""Longer than a leader waits until a marker is committed. A node that has stopped to answer leads no more by then."""
REQUESTS_MAX = 4
"""Under way to one node."""
REQUEST_PLACES_MAX = 1_000
STEP_PLACES = 100
"""Some milliseconds' worth, where each is written to a log here."""
RETRY_MS_MIN, RETRY_MS_MAX = 50, 1_000
REFUSED_MS = 60_000
"""After so long a partition that refused a marker gets it again."""
LATE_MS = 60_000
"""Operators hear of a transaction that takes so long to end, and again each time it has taken ten times as long."""
REFUSALS = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class Task:
    """The markers of one transaction."""

    __slots__ = ("began_ms", "coordinator", "delayed", "effect", "key", "late_ms", "left", "refused", "retry_ms")

    def __init__(self, coordinator: OneCoordinator, effect: WriteMarkers, now_ms: int) -> None:
        self.coordinator = coordinator
        self.effect = effect
        self.key = coordinator, effect.transactional_id
        self.left = len(effect.places)
        """Places that the coordinator does not know to be done."""
        self.delayed: list[Place] = []
        """Tried in vain, until the pause is over."""
        self.refused: list[Place] = []
        """By their partitions, for the time being."""
        self.retry_ms = RETRY_MS_MIN
        self.began_ms, self.late_ms = now_ms, LATE_MS

    @property
    def version(self) -> int:
        return BUMPING_VERSION if self.effect.bumps else 0

    @property
    def coordinator_epoch(self) -> int:
        return self.coordinator.partition.leader.epoch

    @property
    def marker(self) -> Marker:
        effect = self.effect
        end = EndTransaction(effect.commit, self.coordinator_epoch)
        return Marker(Producer(effect.producer_id, effect.epoch), end, self.version)


Wanted = tuple[Task, Place]


class _Lane:
    """What waits for one node."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Wanted] = deque()
        self.under_way = 0


class MarkerSender:
    def __init__(
        self,
        world: World,
        image: Image,
        peers: Peers,
        writer: MarkerWriter,
        later: Callable[[Callable[[], None]], None],
        tell: Callable[[OneCoordinator, MarkersWritten, Answer], None],
        broker_epoch: Callable[[], int],
    ) -> None:
        """`later` has something done in another turn. `tell` tells a coordinator which partitions are done; the answer
        comes when it has stored that, or why it has not."""
        self._world = world
        self._image = image
        self._peers = peers
        self._writer = writer
        self._later = later
        self._tell = tell
        self._broker_epoch = broker_epoch
        self._requests = count(1)
        self._tasks: dict[tuple[OneCoordinator, str], Task] = {}
        self._todo: deque[tuple[Task, Iterator[Place]]] = deque()
        self._lanes: dict[int, _Lane] = {}
        self._done: dict[Task, list[Place]] = {}
        self._is_planned = False

    @property
    def task_count(self) -> int:
        """Transactions that wait for markers."""
        return len(self._tasks)

    def send(self, coordinator: OneCoordinator, effect: WriteMarkers) -> None:
        task = Task(coordinator, effect, self._world.clock.monotonic_ms())
        # One transaction of an id at a time: what an earlier effect asked for is over, or is asked for again by this.
        self._tasks[task.key] = task
        if effect.places:
            # Sorted: the order of a set differs from run to run.
            self._todo.append((task, iter(sorted(effect.places))))
        else:
            self._done[task] = []
        self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._later(self._work)

    def _work(self) -> None:
        """One step: some markers, and what became of them is told."""
        try:
            self._route_some()
            self._tell_done()
        finally:
            # Not before: what is done in this step is told in it.
            self._is_planned = False
        if self._todo or self._done:
            self._plan()
        if not self._todo:
            for node_id in self._lanes:
                self._ask(node_id)

    def _route_some(self) -> None:
        left = STEP_PLACES
        while self._todo and left > 0:
            task, waiting = self._todo[0]
            places = list(islice(waiting, left)) if self._is_wanted(task) else []
            if len(places) < left:
                self._todo.popleft()
            left -= len(places) or 1
            if places:
                self._route(task, places)

    def _is_wanted(self, task: Task) -> bool:
        """Whether nobody else has taken over: another coordinator, or a later effect of the same one."""
        if self._tasks.get(task.key) is not task:
            return False
        if task.coordinator.host.unusable is None:
            return True
        del self._tasks[task.key]
        return False

    def _route(self, task: Task, places: list[Place]) -> None:
        """To whoever leads them now."""
        own_id, topics, brokers = self._world.settings.node_id, self._image.topics, self._image.brokers
        here: list[Place] = []
        gone: list[Place] = []
        unreachable: list[Place] = []
        for place in places:
            topic, index = place
            known = topics.get(topic)
            if known is None or index >= len(known.partitions):
                # This node knew the topic when it was added, or has read what the node read that did: it is deleted.
                gone.append(place)
                continue
            leader = known.partitions[index].leader
            if leader == own_id:
                here.append(place)
            elif (broker := brokers.get(leader)) is None or broker.fenced:
                unreachable.append(place)
            else:
                self._line_up(leader, task, place)
        if gone:
            self._on_done(task, gone)
        if unreachable:
            self._again(task, unreachable)
        if here:
            self._writer.write(here, task.marker, self._world.clock.monotonic_ms(), partial(self._on_code, task))

    # --- other nodes ---

    def _line_up(self, leader: int, task: Task, place: Place) -> None:
        lane = self._lanes.setdefault(leader, _Lane())
        lane.waiting.append((task, place))
        if len(lane.waiting) >= REQUEST_PLACES_MAX:
            self._ask(leader)

    def _ask(self, node_id: int) -> None:
        lane = self._lanes[node_id]
        while lane.waiting and lane.under_way < REQUESTS_MAX:
            wanted = [lane.waiting.popleft() for _ in range(min(len(lane.waiting), REQUEST_PLACES_MAX))]
            wanted = [(task, place) for task, place in wanted if self._is_wanted(task)]
            if not wanted:
                continue
            lane.under_way += 1
            now_ms = self._world.clock.monotonic_ms()
            respond = partial(self._on_response, node_id, wanted)
            request = _request(wanted, self._leader_epoch)
            request.sender_id, request.sender_epoch = self._world.settings.node_id, self._broker_epoch()
            request.sender_number = next(self._requests)
            self._peers.ask(node_id, CHANNEL, request, now_ms, TIMEOUT_MS, respond)

    def _leader_epoch(self, place: Place) -> int:
        topic, index = place
        known = self._image.topics.get(topic)
        return known.partitions[index].leader_epoch if known is not None and index < len(known.partitions) else -1

    def _on_response(self, node_id: int, wanted: list[Wanted], response: Message | None) -> None:
        self._lanes[node_id].under_way -= 1
        codes = _codes(response) if isinstance(response, WriteTxnMarkersResponse) else {}
        for task, place in wanted:
            # No answer is no promise: it gets another one.
            code = codes.get((task.effect.producer_id, *place), ErrorCode.REQUEST_TIMED_OUT)
            self._on_code(task, [place], code)
        self._ask(node_id)

    # --- what became of it ---

    def _on_code(self, task: Task, places: Sequence[Place], code: int) -> None:
        if not self._is_wanted(task):
            return
        if code == ErrorCode.NONE:
            self._on_done(task, places)
        elif code in REFUSALS:
            if not task.refused:
                # Of thousands of partitions one is told.
                self._world.report(MarkerRefused(task.effect.transactional_id, _named(places[0]), ErrorCode(code)))
                at_ms = self._world.clock.monotonic_ms() + REFUSED_MS
                self._world.timers.at(at_ms, lambda: self._try_refused(task))
            task.refused += places
        else:
            self._again(task, places)

    def _on_done(self, task: Task, places: Sequence[Place]) -> None:
        task.retry_ms = RETRY_MS_MIN
        self._done.setdefault(task, []).extend(places)
        self._plan()

    def _again(self, task: Task, places: Sequence[Place]) -> None:
        if not task.delayed:
            now_ms = self._world.clock.monotonic_ms()
            self._world.timers.at(now_ms + task.retry_ms, lambda: self._resume(task))
            task.retry_ms = min(2 * task.retry_ms, RETRY_MS_MAX)
        task.delayed += places

    def _resume(self, task: Task) -> None:
        delayed, task.delayed = task.delayed, []
        if self._is_wanted(task):
            self._report_late(task, delayed)
            self._todo.append((task, iter(delayed)))
            self._plan()

    def _try_refused(self, task: Task) -> None:
        refused, task.refused = task.refused, []
        if self._is_wanted(task):
            self._todo.append((task, iter(refused)))
            self._plan()

    def _report_late(self, task: Task, delayed: list[Place]) -> None:
        since_ms = self._world.clock.monotonic_ms() - task.began_ms
        if since_ms >= task.late_ms:
            task.late_ms *= 10
            key, others = task.effect.transactional_id, len(delayed) - 1
            self._world.report(MarkersLate(key, _named(delayed[0]), others, since_ms))

    def _tell_done(self) -> None:
        done, self._done = self._done, {}
        for task, places in done.items():
            if self._is_wanted(task):
                operation = MarkersWritten(task.effect.transactional_id, task.effect.number, places)
                self._tell(task.coordinator, operation, partial(self._on_told, task, places))

    def _on_told(self, task: Task, places: list[Place], failed: ProtocolError | None) -> None:
        if failed is not None and self._is_wanted(task):
            # It could not be stored. What was written to partitions need not be written again.
            at_ms = self._world.clock.monotonic_ms() + RETRY_MS_MAX
            self._world.timers.at(at_ms, partial(self._put_back, task, places))
            return
        task.left -= len(places)
        if task.left == 0 and self._tasks.get(task.key) is task:
            del self._tasks[task.key]

    def _put_back(self, task: Task, places: list[Place]) -> None:
        self._done.setdefault(task, []).extend(places)
        self._plan()


def _named(place: Place) -> str:
    topic, index = place
    return f"{topic}-{index}"


def _request(wanted: Iterable[Wanted], leader_epoch: Callable[[Place], int]) -> WriteTxnMarkersRequest:
    topics: dict[Task, dict[str, list[int]]] = {}
    for task, (topic, index) in wanted:
        topics.setdefault(task, {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        [
            WritableTxnMarker(
                producer_id=task.effect.producer_id,
                producer_epoch=task.effect.epoch,
                transaction_result=task.effect.commit,
                topics=[
                    WritableTxnMarkerTopic(topic, indexes, [leader_epoch((topic, index)) for index in indexes])
                    for topic, indexes in named.items()
                ],
                coordinator_epoch=task.coordinator_epoch,
                transaction_version=task.version,
            )
            for task, named in topics.items()
        ]
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], int]:
    """By producer id, topic and partition."""
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
