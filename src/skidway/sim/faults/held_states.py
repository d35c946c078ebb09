"""Messages between nodes about share-partitions that the network holds up, each connection for itself.

- `late states`: what is to be initialised or written arrives up to two seconds late, and its sender finds the
  connection broken and asks again meanwhile.
- `deaf`: a machine and the controller do not hear each other; all others hear both.
- `slow states`: what one node is answered to its questions about share-partitions takes its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from skidway.sim.faults.held_messages import BROKEN_MS, LENGTH_BYTES, is_node
from skidway.sim.plan import Fault
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import MS, World
from skidway.sim.world.host import Host
from skidway.sim.world.network import End

INITIALIZE, READ, WRITE = 83, 84, 85
LATE_MS = [60, 250, 900, 1_800]
SLOW_MS = [[0, 20, 120, 500], [600, 900, 2_200]]


@dataclass(slots=True, eq=False)
class _Slow:
    place: str
    waits_ms: list[int]
    random: Random


class HeldStates:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.over = False
        self._late: list[Random] = []
        self._slow: list[_Slow] = []
        self._answers: set[End] = set()

    @property
    def kinds(self) -> dict[str, Callable[[Fault, Host, Random], None]]:
        return {"late states": self.late_states, "slow states": self.slow_states, "deaf": self.deafen}

    def deafen(self, fault: Fault, host: Host, random: Random) -> None:
        controller, network = self.cluster.controller_host(), self.cluster.network
        if controller is None or controller is host:
            return
        ways = [(host.name, controller.name), (controller.name, host.name)]
        for way in ways:
            network.cut(*way)

        def heal() -> None:
            for way in ways:
                network.heal(*way)

        self.world.after(fault.lasts_ms * MS, heal)

    def late_states(self, fault: Fault, host: Host, random: Random) -> None:
        self.cluster.network.hold = self._hold
        self._late.append(random)

    def slow_states(self, fault: Fault, host: Host, random: Random) -> None:
        self.cluster.network.hold = self._hold
        slow = _Slow(host.name, SLOW_MS[fault.amount % len(SLOW_MS)], random)
        self._slow.append(slow)
        self.world.after((500 + fault.lasts_ms) * MS, lambda: self._slow.remove(slow))

    def _hold(self, end: End, data: bytes) -> int:
        """In microseconds."""
        if self.over or len(data) < LENGTH_BYTES + 2 or not (is_node(end.place) and is_node(end.far)):
            return 0
        if end in self._answers:
            for slow in self._slow:
                if slow.place == end.far:
                    return slow.random.choice(slow.waits_ms) * MS
            return 0
        key = int.from_bytes(data[LENGTH_BYTES : LENGTH_BYTES + 2], "big")
        if key not in (INITIALIZE, READ, WRITE):
            return 0
        self._answers.add(end.other)
        if key == READ or not self._late:
            return 0
        random = self._late.pop()
        self.world.mark("write of states held up")
        self.world.say("!", f"a write of {end.place} for {end.far} comes late")
        self.world.after(BROKEN_MS * MS, lambda: self.cluster.network.lose(end))
        return random.choice(LATE_MS) * MS
