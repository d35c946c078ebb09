"""Real brokers for tests: `with Broker() as broker:`, `with Cluster(3) as cluster:`, or the pytest fixtures `broker`,
`fresh_broker`, `kafka_topic` and `cluster`.

Importing this package costs next to nothing, because pytest loads the plugin in every run where Skidway is installed;
what does the work is imported on first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skidway.testing.broker import Broker, BrokerFailed
    from skidway.testing.cluster import Cluster

__all__ = ["Broker", "BrokerFailed", "Cluster"]


def __getattr__(name: str) -> object:
    if name == "Cluster":
        from skidway.testing.cluster import Cluster

        return Cluster
    if name in __all__:
        from skidway.testing import broker

        return getattr(broker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
