"""A shop's clickstream and orders, as they really come: late, twice, broken, and one customer far busier than others.

Deterministic: a seed, a start and a rate give the same events always, and `fault` says what is wrong with each, so
that a demonstration or a test can count what pipelines should find. Needs no Spark:

    python -m skidway.spark.pipelines.clickstream --bootstrap 127.0.0.1:9092 --seconds 30 --rate 500
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.producer import Producer

CLICKS = "clicks"
ORDERS = "orders"
LATE, DUPLICATE, BROKEN = "late", "duplicate", "broken"
HOT_USER = "user-0007"
PAGES = ("/", "/search", "/product", "/cart", "/checkout", "/help")
PAGE_WEIGHTS = (30, 25, 30, 8, 4, 3)
COUNTRIES = ("DE", "FR", "US", "JP", "BR")
COUNTRY_WEIGHTS = (35, 20, 25, 12, 8)
PRODUCTS = ("axe", "saw", "rope", "boots", "helmet", "wedge", "gloves")
RECENT_MAX = 200

ORDER_SCHEMA = (
    "event_id string, user string, country string, amount double, currency string, "
    "items array<struct<sku: string, quantity: int>>, at timestamp"
)


@dataclass(slots=True)
class Shape:
    """Shares are of all events, 0 to 1."""

    users: int = 500
    hot_share: float = 0.25
    order_share: float = 0.15
    late_share: float = 0.04
    late_by_s: tuple[int, int] = (20, 180)
    duplicate_share: float = 0.03
    broken_share: float = 0.02


@dataclass(slots=True)
class Event:
    topic: str
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int
    """When it is sent; what happened may be older."""
    fault: str = ""


class Clickstream:
    def __init__(self, *, seed: int = 7, start_ms: int, rate_per_s: float = 500.0, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        self._random = random.Random(seed)
        self._start_ms = start_ms
        self._step_ms = 1000 / rate_per_s
        self._number = 0
        self._recent: list[Event] = []

    def events(self, count: int | None = None) -> Iterator[Event]:
        """For ever, or so many."""
        while count is None or count > 0:
            count = None if count is None else count - 1
            yield self._next()

    def _next(self) -> Event:
        chance, shape = self._random.random(), self.shape
        now_ms = self._start_ms + int(self._number * self._step_ms)
        self._number += 1
        if chance < shape.duplicate_share and self._recent:
            return replace(self._random.choice(self._recent), timestamp_ms=now_ms, fault=DUPLICATE)
        chance -= shape.duplicate_share
        late = 0 <= chance < shape.late_share
        happened_ms = now_ms - self._random.randint(*shape.late_by_s) * 1000 if late else now_ms
        event = self._sound(now_ms, happened_ms)
        if shape.late_share <= chance < shape.late_share + shape.broken_share:
            return self._break(event)
        event.fault = LATE if late else ""
        self._recent.append(event)
        del self._recent[:-RECENT_MAX]
        return event

    def _sound(self, now_ms: int, happened_ms: int) -> Event:
        chosen = self._random
        hot = chosen.random() < self.shape.hot_share
        user = HOT_USER if hot else f"user-{chosen.randrange(self.shape.users):04d}"
        country = chosen.choices(COUNTRIES, COUNTRY_WEIGHTS)[0]
        identity = f"{self._number:08d}-{chosen.getrandbits(32):08x}"
        body: dict[str, object] = {"event_id": identity, "user": user, "country": country}
        ordered = chosen.random() < self.shape.order_share
        if ordered:
            bought = chosen.sample(PRODUCTS, chosen.randint(1, 3))
            body["items"] = [{"sku": sku, "quantity": chosen.randint(1, 4)} for sku in bought]
            body |= {"amount": round(chosen.lognormvariate(3.6, 0.8), 2), "currency": "EUR"}
        else:
            body |= {"session": f"{user}-{now_ms // 1_800_000}", "page": chosen.choices(PAGES, PAGE_WEIGHTS)[0]}
            body["load_ms"] = int(chosen.lognormvariate(5, 0.6))
        body["at"] = datetime.fromtimestamp(happened_ms / 1000, UTC).isoformat(timespec="milliseconds")
        value = json.dumps(body).encode()
        return Event(ORDERS if ordered else CLICKS, user.encode(), value, [("source", b"shop")], now_ms)

    def _break(self, event: Event) -> Event:
        """As producers with bugs do it: cut off, another encoding, a wrong type, no JSON at all."""
        body = json.loads(event.value)
        way = self._random.randrange(4)
        if way == 0:
            broken = event.value[: len(event.value) // 2]
        elif way == 1:
            broken = event.value[:-1] + b', "note": "caf\xe9"}'
        elif way == 2:
            wrong = "amount" if event.topic == ORDERS else "load_ms"
            broken = json.dumps(body | {wrong: "a lot"}).encode()
        else:
            broken = b"ERROR could not render event"
        return replace(event, value=broken, fault=BROKEN)


def send(bootstrap: str, events: Iterable[Event], *, partitions: int = 4, paced: bool = False) -> Counter[str]:
    """Produce events and count them by topic and by fault. `paced`: each at its time, not before."""
    sent: Counter[str] = Counter()
    with Cluster(bootstrap, client_id="skidway-clickstream") as cluster:
        admin = Admin(cluster)
        there = {topic.name for topic in admin.topics()}
        for name in (CLICKS, ORDERS):
            if name not in there:
                admin.create_topic(name, partitions=partitions)
        with Producer(cluster) as producer:
            for event in events:
                if paced:
                    _wait_for(producer, event.timestamp_ms)
                producer.send(
                    event.topic,
                    event.value,
                    key=event.key,
                    headers=tuple(event.headers),
                    timestamp_ms=event.timestamp_ms,
                )
                sent.update([event.topic, event.fault or "sound"])
    return sent


def _wait_for(producer: Producer, due_ms: int) -> None:
    """What has been gathered leaves before waiting: nobody sees an event late for the pace's sake."""
    ahead_s = due_ms / 1000 - time.time()
    if ahead_s > 0.05:
        producer.flush()
        time.sleep(ahead_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="clickstream", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=500, help="events a second")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument(
        "--history",
        type=float,
        default=0,
        help="start this many seconds in the past, and send those events without waiting",
    )
    chosen = parser.parse_args()
    start_ms = int((time.time() - chosen.history) * 1000)
    stream = Clickstream(seed=chosen.seed, start_ms=start_ms, rate_per_s=chosen.rate)
    count = int((chosen.seconds + chosen.history) * chosen.rate)
    sent = send(chosen.bootstrap, stream.events(count), partitions=chosen.partitions, paced=True)
    print(", ".join(f"{count} {name}" for name, count in sorted(sent.items())))


if __name__ == "__main__":
    main()
