"""What all HTTP connections of one listener share: the node, the routes, who may come in, and what is counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from skidway.broker.listeners import ListenerSpec
from skidway.broker.metrics import Take
from skidway.broker.node import Node
from skidway.broker.services import Services
from skidway.gateways.http.channels import WaitingChannels
from skidway.gateways.http.dates import DateHeader
from skidway.gateways.http.head import Head
from skidway.gateways.http.keys import Keys
from skidway.gateways.http.problems import Problem, unavailable
from skidway.gateways.http.routes import Route, Routes
from skidway.gateways.queues.attempts import Attempts
from skidway.gateways.queues.ids import Ids
from skidway.gateways.queues.opened import OpenedBatches
from skidway.gateways.queues.types import Queue
from skidway.metadata.topic_configs import QueueConfig

_LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|::1")
_SAFE_HOST = re.compile(rb"(?:(?:[a-z0-9-]+\.)*localhost|[0-9.]+|\[[0-9a-f:.]+\])(?::[0-9]*)?", re.IGNORECASE)


class HttpSite:
    def __init__(
        self, node: Node, listener: ListenerSpec, rows: Sequence[Route], samples: Callable[[Take], None]
    ) -> None:
        """`samples` are what the shell measures beside the node."""
        self.node = node
        self.samples = samples
        self.routes = Routes(rows)
        self.date = DateHeader()
        self.channels = WaitingChannels()
        self.keys = Keys()
        self.refused: dict[int, int] = {}
        """Requests whose route nobody knows, by the status of the answer."""
        self.queue_ids: Ids | None = None
        """Of this cluster, once they were needed."""
        self.topic_marks: dict[int, list[bytes]] = {}
        """Which topics the marks in message ids may stand for."""
        self.queues_found: dict[bytes, tuple[QueueConfig, Queue]] = {}
        """By the ids of their topics, and what they were made of."""
        self.attempts = Attempts()
        """Receives that may be made again."""
        self.opened = OpenedBatches()
        """Batches that messages were taken out of."""
        self.own_machine_only = _LOOPBACK.fullmatch(listener.bind.host) is not None
        self.other_protocol: Callable[[Head], Route | None] = lambda head: None
        """Who answers a request that is told apart by its headers, on any path."""

        self._number = 0

    def next_number(self) -> int:
        """For those who take turns."""
        self._number += 1
        return self._number

    @property
    def services(self) -> Services:
        return self.node.rooms.services

    def find(self, head: Head) -> tuple[Route, tuple[str, ...]]:
        """Who answers a request, and what the names in its path stand for. Raises Problem. A protocol that shares this
        listener and is told apart by headers, on any path, is looked for here first."""
        self._check_host(head)
        other = self.other_protocol(head)
        return self.routes.find(head) if other is None else (other, ())

    def _check_host(self, head: Head) -> None:
        """A name that is not of this machine, at an address that is: some web site had a browser believe that its
        name leads here, to read what is meant for this machine alone."""
        if not self.own_machine_only or not head.minor:
            return
        if not _SAFE_HOST.fullmatch(head.headers[b"host"]):
            text = "this broker answers HTTP on its own machine only: the Host must be localhost or an IP address"
            raise Problem(421, "bad_host", text)

    def check_ready(self, route: Route) -> None:
        if not (route.early or self.node.serving):
            raise unavailable("starting", "this node is not ready for clients yet")
