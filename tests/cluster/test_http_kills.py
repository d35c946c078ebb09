"""Writes with an Idempotency-Key through real nodes that are killed: sent until answered, and each written once.

The client does the simplest thing: after any failure, of whatever kind, it sends the same request to the next node.
"""

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from skidway.testing import Cluster
from waiting import eventually

WRITES = 200
KILLS_AT = (40, 110)
CLIENTS = 4
ANSWERED_S = 15
"""Longer than a node takes at most to say that it cannot."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, http="127.0.0.1:0", network=False) as started:
        yield started


def ask(cluster: Cluster, node: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(cluster[node].http).netloc, timeout=ANSWERED_S)
    try:
        if body is not None:
            headers |= {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def write(cluster: Cluster, number: int, attempts: list[str]) -> Any:
    """Until a node says that it is written; the place."""
    body = {"records": [{"key": str(number), "value": number}]}
    turns = 0

    def sent() -> Any:
        nonlocal turns
        node = cluster.running[(number + turns) % len(cluster.running)]
        turns += 1
        try:
            status, answer = ask(
                cluster, node, "POST", "/v1/topics/orders/produce", body, **{"Idempotency-Key": f"order-{number}"}
            )
        except (OSError, http.client.HTTPException) as error:
            attempts.append(type(error).__name__)
            return None
        if status != 200:
            assert answer["retryable"], answer
            attempts.append(answer["code"])
            return None
        return answer["offsets"][0]

    return eventually(sent, 120)


def have_ended(writing: dict[int, Future[Any]], number: int) -> bool:
    return sum(each.done() for each in writing.values()) >= number


def test_every_write_is_there_once_where_its_answer_says(cluster: Cluster) -> None:
    """Leaders are killed while four clients write."""
    attempts: list[str] = []
    write(cluster, WRITES, [])  # which creates the topic
    with ThreadPoolExecutor(CLIENTS) as clients:
        writing = {number: clients.submit(write, cluster, number, attempts) for number in range(WRITES)}
        for kill_at in KILLS_AT:
            eventually(partial(have_ended, writing, kill_at), 120)
            killed = cluster.leader_of("orders", 0)
            cluster.kill(killed)
            eventually(partial(have_ended, writing, kill_at + 30), 120)
            cluster.start(killed)
        answered = {number: each.result() for number, each in writing.items()}
    places = {(place["partition"], place["offset"]): number for number, place in answered.items()}
    assert len(places) == WRITES
    for number in range(0, WRITES, 7):  # long after, and to a node that may not have seen it
        assert write(cluster, number, attempts) == answered[number]
    found: dict[tuple[int, int], int] = {}
    for partition in {partition for partition, _ in places}:
        status, answer = ask(cluster, cluster.running[0], "GET", f"/v1/topics/orders/records?partition={partition}")
        assert status == 200
        found |= {(partition, record["offset"]): int(record["value"]) for record in answer["records"]}
    assert {place: number for place, number in found.items() if number != WRITES} == places
    print(f"failed attempts: {attempts}")
