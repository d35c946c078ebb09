"""Prometheus itself reads a broker's metrics: the text format, and what a scrape makes of it."""

import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from skidway.testing import Broker
from skidway.testing.free_ports import free_ports
from waiting import eventually

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")

START_S = 120.0
CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: skidway
    static_configs: [{{targets: ["{broker}"]}}]
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http="127.0.0.1:0", flush="os") as started:
        yield started


@pytest.fixture
def prometheus(broker: Broker, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes the broker."""
    port = free_ports()
    address = f"127.0.0.1:{port}"
    configuration = tmp_path / "prometheus.yml"
    configuration.write_text(CONFIGURATION.format(broker=urlsplit(broker.http).netloc))
    command = [
        "prometheus",
        f"--config.file={configuration}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address={address}",
    ]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield address
        finally:
            process.kill()


def value_of(prometheus: str, query: str) -> float | None:
    """None while Prometheus does not serve, or has no such sample."""
    connection = http.client.HTTPConnection(prometheus, timeout=30)
    try:
        connection.request("GET", f"/api/v1/query?query={quote(query)}")
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    found = answer.get("data", {}).get("result", [])
    return float(found[0]["value"][1]) if found else None


def write(broker: Broker, topic: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=30)
    body = json.dumps({"records": [{"value": "v"}]})
    connection.request("POST", f"/v1/topics/{topic}/produce", body, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


def test_prometheus_scrapes_a_broker(broker: Broker, prometheus: str) -> None:
    write(broker, "scraped")
    eventually(lambda: value_of(prometheus, 'up{job="skidway"}') == 1, START_S)
    assert value_of(prometheus, "kafka_server_kafkaserver_brokerstate") == 3
    count = 'skidway_http_request_seconds_count{route="/v1/topics/{topic}/produce"}'
    eventually(lambda: value_of(prometheus, count) == 1)
    write(broker, "scraped")
    eventually(lambda: value_of(prometheus, count) == 2)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="prometheus is not installed")
def test_promtool_reads_the_metrics(broker: Broker) -> None:
    connection = http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=30)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read()
    connection.close()
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60)
    assert checked.returncode in (0, 3), checked.stderr  # 3: names that it would have chosen differently
