"""HTTP over real sockets: the listener of a broker's process, its bounds, and other programs as clients."""

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from skidway.testing import Broker
from waiting import comes_true


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http="127.0.0.1:0", flush="os", limits={"frame_complete_ms": 300}) as started:
        yield started


def connect(broker: Broker) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=30)


def raw(broker: Broker) -> socket.socket:
    where = urlsplit(broker.http)
    assert where.hostname is not None
    assert where.port is not None
    return socket.create_connection((where.hostname, where.port), timeout=30)


def read_all(peer: socket.socket) -> bytes:
    """Until the broker closes."""
    found = b""
    while data := peer.recv(65_536):
        found += data
    return found


def is_dropped(peer: socket.socket) -> bool:
    """Closed without a word."""
    try:
        return read_all(peer) == b""
    except ConnectionError:
        return True


def serves(broker: Broker) -> bool:
    try:
        return get(broker, "/livez")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def get(broker: Broker, path: str) -> tuple[int, Any]:
    connection = connect(broker)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, json.loads(body) if "json" in answer.headers["content-type"] else body


def test_one_connection_serves_many_requests(broker: Broker) -> None:
    connection = connect(broker)
    for _ in range(50):
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b"ok\n"
    connection.close()


def test_a_broker_alone_is_ready_and_may_stop(broker: Broker) -> None:
    assert get(broker, "/readyz") == (200, {"ready": True, "node": 1, "reasons": []})
    status, safety = get(broker, "/v1/node/safe-to-stop")
    assert (status, safety["safe"], safety["alone"]) == (200, True, True)


def test_metrics_can_be_scraped(broker: Broker) -> None:
    status, page = get(broker, "/metrics")
    assert status == 200
    text = page.decode()
    for name in ("kafka_server_kafkaserver_brokerstate", "skidway_loop_turns_total", "process_resident_memory_bytes"):
        assert f"\n{name} " in text, name
    assert "\nkafka_server_kafkaserver_brokerstate 3\n" in text


def test_prometheus_client_reads_the_metrics(broker: Broker) -> None:
    """Every line, by the parser that other tools use; histograms add up."""
    connection = connect(broker)
    body = json.dumps({"records": [{"value": "v"}]})
    connection.request("POST", "/v1/topics/measured/produce", body, {"Content-Type": "application/json"})
    assert connection.getresponse().read()
    connection.close()
    _, page = get(broker, "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(page.decode())}
    assert len(families) > 40
    assert all(family.type in ("counter", "gauge", "histogram") for family in families.values())
    samples = families["skidway_http_request_seconds"].samples
    found = [each for each in samples if each.labels["route"] == "/v1/topics/{topic}/produce"]
    buckets = [each.value for each in found if each.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert [each.labels["le"] for each in found if each.name.endswith("_bucket")][-1] == "+Inf"
    assert buckets[-1] == next(each.value for each in found if each.name.endswith("_count")) == 1
    syncs = families["skidway_sync_seconds"].samples
    assert next(each.value for each in syncs if each.name.endswith("_count")) >= 1, "the record was synced"
    assert [each.labels for each in syncs if each.name.endswith("_sum")] == [{}]


def test_curl_is_told_to_go_on_and_hears_of_a_body_that_is_too_large(broker: Broker, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(11 << 20))
    command = ["curl", "-sS", "-o", "-", "-w", "%{http_code}", "--data-binary", f"@{large}", f"{broker.http}/livez"]
    for more in ([], ["-H", "Expect:"]):
        done = subprocess.run([*command, *more], capture_output=True, timeout=60, check=True)
        assert done.stdout.endswith(b"413"), done


def test_a_slow_sender_is_dropped(broker: Broker) -> None:
    peer = raw(broker)
    peer.sendall(b"GET /livez HTTP/1.1\r\nHost: loc")
    assert is_dropped(peer)
    peer.close()


def test_a_body_that_dribbles_is_dropped(broker: Broker) -> None:
    peer = raw(broker)
    peer.sendall(b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx")
    assert is_dropped(peer)
    peer.close()


def test_a_refusal_reaches_a_peer_that_goes_on_sending(broker: Broker) -> None:
    peer = raw(broker)
    peer.sendall(b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n")
    for _ in range(50):
        peer.sendall(bytes(65_536))
    assert read_all(peer).startswith(b"HTTP/1.1 413 ")
    peer.close()


def test_a_kafka_client_at_the_http_port_is_refused(broker: Broker) -> None:
    peer = raw(broker)
    peer.sendall(b"\0\0\0\x20\0\x12\0\0\0\0\0\1" + b"\r\n\r\n")
    assert read_all(peer).startswith(b"HTTP/1.1 400 ")
    peer.close()


def test_idle_connections_have_a_bound_and_others_are_served() -> None:
    listeners = {"HTTP": {"connections_max": 20}}
    with Broker(http="127.0.0.1:0", flush="os", listeners=listeners) as broker:
        idle = [raw(broker) for _ in range(20)]
        refused = raw(broker)
        assert is_dropped(refused)
        idle[0].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[0].recv(100).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection((broker.host, broker.port), timeout=10):
            pass
        for peer in (*idle, refused):
            peer.close()
        assert comes_true(lambda: serves(broker))


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """It ends at the latest when its standard input does."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def lines_until(process: subprocess.Popen[bytes], text: str) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.decode()
        if text in line.decode():
            return


def test_a_taken_port_is_a_warning_unless_it_was_asked_for(tmp_path: Path) -> None:
    """The default needs ports 9092 and 8082, so it is tried where nobody else is: at an address of its own."""
    taken = socket.create_server(("127.0.0.77", 8082))
    script = """
import sys
from skidway.server import listening
from skidway.broker.listeners import Address
listening.DEFAULT_HTTP = Address("127.0.0.77", 8082)
from skidway.testing.hosted import main
sys.exit(main())
"""
    words = ["--listen", "127.0.0.77:9092", "--data-dir", str(tmp_path)]
    first = start([sys.executable, "-c", script, *words])
    lines = list(lines_until(first, " ready on "))
    first.terminate()
    first.communicate(timeout=60)
    assert any("this broker does not answer HTTP: 127.0.0.77:8082 is in use by process" in line for line in lines), (
        lines
    )
    assert "ready on 127.0.0.77:9092 " in lines[-1]
    second = start([sys.executable, "-c", script, *words, "--http", "127.0.0.77:8082"])
    lines = list(lines_until(second, "error: "))
    assert "cannot listen on 127.0.0.77:8082: the port is in use" in lines[-1]
    assert second.wait(60) == 1
    second.communicate()
    taken.close()


def test_a_stop_answers_what_is_under_way_and_closes_the_rest() -> None:
    with Broker(http="127.0.0.1:0", flush="os") as broker:
        idle, partial = raw(broker), raw(broker)
        partial.sendall(b"GET /livez HTTP/1.1\r\nHo")
        assert get(broker, "/livez")[0] == 200
        assert broker.stop() == 0
        assert idle.recv(1) == b""
        idle.close()
        partial.close()
