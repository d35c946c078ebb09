"""Topics for the tests of pipelines: names of their own, filled and read without Spark."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.consumer import Consumed, Consumer
from skidway.blocking_client.producer import Producer

_numbers = itertools.count()


def new_name(base: str) -> str:
    return f"{base}-{next(_numbers)}"


def new_topic(bootstrap: str, base: str, partitions: int = 2) -> str:
    name = new_name(base)
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name, partitions=partitions)
    return name


def put(bootstrap: str, topic: str, values: Iterable[Any], **more: Any) -> None:
    """Values as bytes, or as what JSON makes of them; or tuples of key and value."""
    with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        for one in values:
            key, value = one if isinstance(one, tuple) else (None, one)
            written = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            producer.send(topic, written, key=key, **more)


def taken(bootstrap: str, topic: str) -> list[Consumed]:
    with Cluster(bootstrap) as cluster:
        positions = dict.fromkeys(cluster.topic(topic).partitions, 0)
        return list(Consumer(cluster, topic, positions).read())


def documents(bootstrap: str, topic: str) -> list[Any]:
    return [json.loads(record.value or b"null") for record in taken(bootstrap, topic)]
