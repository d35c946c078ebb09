"""A WebSocket of a real broker, by the client of another library."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from skidway.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(http="127.0.0.1:0", flush="os", default_partitions=3) as started:
        yield started


def open_socket(broker: Broker, **more: Any) -> ClientConnection:
    opened: ClientConnection = connect(broker.http.replace("http://", "ws://") + "/v1/ws", **more)
    return opened


def say(socket: ClientConnection, **command: Any) -> None:
    socket.send(json.dumps(command))


def hear(socket: ClientConnection) -> Any:
    return json.loads(socket.recv(timeout=60))


def test_all_that_a_producer_writes_comes_within_the_credit(broker: Broker) -> None:
    """The client grants ten more whenever it has seen ten; a stop of the broker says goodbye."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    count = 2_000
    for number in range(count):
        producer.produce("t", str(number).encode() + b"x" * 500, str(number))
    assert producer.flush(60) == 0
    seen: list[tuple[int, int]] = []
    with open_socket(broker) as socket:
        say(socket, type="subscribe", id="s", topic="t", offset="earliest", credit=100)
        assert hear(socket)["type"] == "subscribed"
        for received in range(1, count + 1):
            message = hear(socket)
            seen.append((message["partition"], message["offset"]))
            if not received % 10:
                say(socket, type="credit", id="s", credit=10)
        assert len(set(seen)) == count
        for index in range(3):
            assert [offset for partition, offset in seen if partition == index] == list(
                range(sum(partition == index for partition, _ in seen))
            )
        assert socket.ping().wait(60)
        with ThreadPoolExecutor(1) as another:
            stopped = another.submit(broker.stop)
            with pytest.raises(ConnectionClosed) as caught:
                hear(socket)
            assert stopped.result(60) == 0
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1001


def test_a_page_of_another_site_is_refused(broker: Broker) -> None:
    with pytest.raises(InvalidStatus) as caught:
        open_socket(broker, origin="https://evil.example")
    assert caught.value.response.status_code == 403
