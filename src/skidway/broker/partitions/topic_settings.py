"""The settings that committed metadata gives this node: those of every topic, throttle rates, and bounds that were
changed at run time."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from skidway.broker.settings import NodeSettings
from skidway.limits import Limits
from skidway.log.logs import Logs
from skidway.metadata.broker_configs import LIMIT_NAMES, number, verifies
from skidway.metadata.config_keys import Defaults
from skidway.metadata.image import Image
from skidway.metadata.topic_configs import QueueConfig, TopicConfig, resolve, resolve_queue
from skidway.replica.throttle import Throttle


class TopicSettings:
    def __init__(
        self, settings: NodeSettings, limits: Limits, image: Image, logs: Logs, on_limits: Callable[[Limits], None]
    ) -> None:
        """`on_limits` is called when bounds were changed at run time."""
        self.static = settings.static_configs(limits)
        self.limits = limits
        self.leader_throttle = Throttle()
        self.follower_throttle = Throttle()
        self.verifies_transactions = True
        self._node_id = settings.node_id
        self._image = image
        self._logs = logs
        self._on_limits = on_limits
        self._configs: dict[str, TopicConfig] = {}
        """Resolved once for all partitions of a topic; forgotten when a setting changes."""
        self._queues: dict[str, QueueConfig] = {}

    @property
    def defaults(self) -> Defaults:
        """What topics without a setting of their own follow."""
        return self._image.defaults_for(self._node_id, self.static)

    def of(self, topic: str) -> TopicConfig:
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = resolve(self._image.topic_config(topic), self.defaults)
        return config

    def queue(self, topic: str) -> QueueConfig:
        config = self._queues.get(topic)
        if config is None:
            config = self._queues[topic] = resolve_queue(self._image.topic_config(topic))
        return config

    def on_topic_removed(self) -> None:
        """Another of the same name may come."""
        self._forget()

    def _forget(self) -> None:
        self._configs.clear()
        self._queues.clear()

    def on_changed(self) -> None:
        """The metadata says something new about a topic or a broker."""
        self._forget()
        defaults = self.defaults
        self.leader_throttle.rate = number("leader.replication.throttled.rate", defaults)
        self.follower_throttle.rate = number("follower.replication.throttled.rate", defaults)
        self.verifies_transactions = verifies(defaults)
        changed = {field: number(name, defaults) for name, field in LIMIT_NAMES.items()}
        changed["connections_per_ip_max"] = min(changed["connections_per_ip_max"], changed["connections_max"])
        limits = replace(self.limits, **changed)
        if limits != self.limits:
            self.limits = self._logs.limits = limits
            for _, log in self._logs.items():
                log.limits = limits
                log.producers.expiry_ms = limits.producer_expiry_ms
            self._on_limits(limits)
