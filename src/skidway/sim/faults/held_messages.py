"""Messages between nodes about transactions that the network holds up, each connection for itself.

- `late markers`: a request with markers arrives seconds later, and its sender finds the connection broken and sends
  another one meanwhile. So the first arrives past the transaction that comes next. Where a transaction has no epoch of
  its own, only the number of the request tells that marker from one for the next transaction. Every second time the
  coordinator is killed there, and only the epoch of its successor tells.
- `slow answers`: what one node is answered to its requests with markers, to its questions about transactions, or to
  both takes its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from skidway.sim.plan import Fault
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import MS, World
from skidway.sim.world.host import Host
from skidway.sim.world.network import End
from skidway.wire.headers import read_request_header
from skidway.wire.registry import api
from skidway.wire.schema.write_txn_markers import WriteTxnMarkersRequest

ADD_PARTITIONS, WRITE_MARKERS = 24, 27
LENGTH_BYTES = 4
OWN_EPOCHS_SINCE = 2
KINDS = [(ADD_PARTITIONS, WRITE_MARKERS), (ADD_PARTITIONS,), (WRITE_MARKERS,)]
"""Of requests whose answers are slow."""
LATE_MS = [150, 400, 900, 1_800]
LATER_MS = [700, 1_100, 1_700]
"""Another coordinator has to be elected meanwhile."""
SLOW_MS = [[0, 20, 120, 500, 900], [600, 900, 1_300]]
BROKEN_MS = 3
"""After so long the sender finds its connection broken."""


@dataclass(slots=True, eq=False)
class _Slow:
    place: str
    """Of whoever asks."""
    keys: tuple[int, ...]
    waits_ms: list[int]
    random: Random


class HeldMessages:
    def __init__(self, world: World, cluster: Cluster, kill: Callable[[Fault, Host, Random], None]) -> None:
        self.world = world
        self.cluster = cluster
        self.over = False
        self._kill = kill
        self._late: list[tuple[Fault, Random]] = []
        self._slow: list[_Slow] = []
        self._answers: dict[End, int] = {}
        """Ends that answer questions and requests with markers: which of them."""

    @property
    def kinds(self) -> dict[str, Callable[[Fault, Host, Random], None]]:
        return {"late markers": self.late_markers, "slow answers": self.slow_answers}

    def late_markers(self, fault: Fault, host: Host, random: Random) -> None:
        self._begin()
        self._late.append((fault, random))

    def slow_answers(self, fault: Fault, host: Host, random: Random) -> None:
        self._begin()
        waits_ms = SLOW_MS[fault.amount // len(KINDS) % len(SLOW_MS)]
        slow = _Slow(host.name, KINDS[fault.amount % len(KINDS)], waits_ms, random)
        self._slow.append(slow)
        self.world.after((1_000 + fault.lasts_ms) * MS, lambda: self._slow.remove(slow))

    def _begin(self) -> None:
        self.cluster.network.hold = self._hold

    def _hold(self, end: End, data: bytes) -> int:
        """In microseconds."""
        if self.over or len(data) < LENGTH_BYTES + 2 or not (is_node(end.place) and is_node(end.far)):
            return 0
        if end in self._answers:
            for slow in self._slow:
                if slow.place == end.far and self._answers[end] in slow.keys:
                    return slow.random.choice(slow.waits_ms) * MS
            return 0
        key = int.from_bytes(data[LENGTH_BYTES : LENGTH_BYTES + 2], "big")
        if key not in (ADD_PARTITIONS, WRITE_MARKERS):
            return 0
        self._answers[end.other] = key
        return self._hold_markers(end, data) if key == WRITE_MARKERS and self._late else 0

    def _hold_markers(self, end: End, data: bytes) -> int:
        host = next((each for each in self.cluster.hosts.values() if each.name == end.place), None)
        if host is None or host.node is None:
            return 0
        fault, random = self._late.pop()
        self.world.mark("markers held up")
        self.world.say("!", f"markers of {end.place} for {end.far} come late")
        life = host.life
        if _have_own_epochs(data) or fault.amount % 2 == 0:
            self.world.after(BROKEN_MS * MS, lambda: self.cluster.network.lose(end))
            return random.choice(LATE_MS) * MS
        self.world.after(0, lambda: self._kill(fault, host, random) if host.life == life else None)
        return random.choice(LATER_MS) * MS


def is_node(place: str) -> bool:
    return place[0] == "n" and place[1:].isdigit()


def _have_own_epochs(data: bytes) -> bool:
    body = memoryview(data)[LENGTH_BYTES:]
    header = read_request_header(body)
    request, _ = api(WRITE_MARKERS).request.decoder(header.version)(body, header.body_position)
    assert isinstance(request, WriteTxnMarkersRequest)
    return all(marker.transaction_version >= OWN_EPOCHS_SINCE for marker in request.markers)
