"""Puts the broker's node together from its settings and the real machine's disk, clock and randomness."""

from importlib import import_module
from typing import Any

from skidway.ports import Clock, Random
from skidway.server.config import Address, Settings
from skidway.server.disk import RealDisk


def make_node(settings: Settings, advertised: Address, disk: RealDisk, clock: Clock, random: Random) -> Any:
    """The node, not opened yet. Imported here: flags and settings are checked before the broker is loaded."""
    node = import_module("skidway.broker.node")
    return node.Node(
        settings, disk, random, settings.limits, clock=clock, advertised=(advertised.host, advertised.port)
    )


def hangup_type() -> type[Exception]:
    hangup: type[Exception] = import_module("skidway.broker.connection").Hangup
    return hangup
