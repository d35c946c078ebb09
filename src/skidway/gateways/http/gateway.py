"""HTTP in front of one node."""

from collections.abc import Callable, Mapping

from skidway.broker.listeners import ListenerSpec
from skidway.broker.metrics import Take
from skidway.broker.node import Node
from skidway.gateways.http.connection import HttpConnection
from skidway.gateways.http.site import HttpSite
from skidway.gateways.http.table import rows
from skidway.gateways.sqs.door import SqsDoor
from skidway.gateways.sqs.signatures import Keys


class HttpGateway:
    def __init__(
        self,
        node: Node,
        listener: ListenerSpec,
        samples: Callable[[Take], None] = lambda take: None,
        sqs_keys: Mapping[str, str] | None = None,
    ) -> None:
        """`samples` are what the shell measures beside the node, `sqs_keys` the secrets of those who sign requests."""
        site = self.site = HttpSite(node, listener, rows(), samples)
        self.sqs = SqsDoor(site.routes, Keys(sqs_keys or {}), is_open=site.own_machine_only)
        site.other_protocol = self.sqs.find

    def connect(self, peer: str, listener: str) -> HttpConnection:
        return HttpConnection(self.site, peer, listener)
