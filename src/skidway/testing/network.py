"""The network between the nodes of a test cluster: every node reaches every other through a proxy that can be cut.

The proxies run in one process of their own (`skidway.testing.proxy`), which ends with this one.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from itertools import permutations

Direction = tuple[int, int]
"""(source, target): the way bytes travel, whoever opened the connection."""


class Network:
    def __init__(self, nodes: Mapping[int, tuple[str, int]]) -> None:
        """`nodes`: where each of them listens."""
        self._nodes = dict(nodes)
        self._ports: dict[Direction, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self.cut_off: set[Direction] = set()

    def start(self) -> "Network":
        command = [sys.executable, "-m", "skidway.testing.proxy"]
        # A session of its own: Ctrl-C at the tests is theirs to handle.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        pairs = list(permutations(self._nodes, 2))
        ports = json.loads(self._tell([(source, target, *self._nodes[target]) for source, target in pairs]))
        self._ports = dict(zip(pairs, ports, strict=True))
        return self

    def address(self, source: int, target: int) -> tuple[str, int]:
        """Where `source` finds `target`."""
        return "127.0.0.1", self._ports[source, target]

    def cut(self, directions: Iterable[Direction]) -> None:
        """No byte travels from the first to the second any more, in addition to what is cut already."""
        wanted = set(directions)
        unknown = wanted - set(self._ports)
        if unknown:
            raise ValueError(f"no way from {' or '.join(f'{a} to {b}' for a, b in sorted(unknown))} in this network")
        self._set(self.cut_off | wanted)

    def partition(self, groups: Iterable[Iterable[int]]) -> None:
        """Nodes of different groups do not reach each other; those not named are one more group."""
        sets = [set(group) for group in groups]
        named = set().union(*sets)
        if len(named) < sum(map(len, sets)) or not named <= set(self._nodes):
            raise ValueError(f"every node of {sorted(self._nodes)} may be in one group; got {sets}")
        sets.append(set(self._nodes) - named)
        apart = {
            (one, other)
            for one, other in permutations(self._nodes, 2)
            if not any(one in group and other in group for group in sets)
        }
        self._set(self.cut_off | apart)

    def heal(self) -> None:
        self._set(set())

    def close(self) -> None:
        """May be called twice."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _set(self, directions: set[Direction]) -> None:
        self._tell(sorted(directions))
        self.cut_off = directions

    def _tell(self, message: object) -> bytes:
        assert self._process is not None, "the network has not been started"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the network's process ended with exit code {self._process.wait()}")
        return answer
