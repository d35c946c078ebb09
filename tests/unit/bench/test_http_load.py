"""The load on HTTP counts what was answered, and nothing else."""

import pytest
from bench.frames import BenchError
from bench.http_load import CONNECTIONS, Client, Figures, Workload, get, run_for, suite, workloads

from skidway.testing import Broker


def test_every_workload_runs_and_is_counted() -> None:
    found: dict[tuple[str, int], Figures] = {}
    with Broker(http="127.0.0.1:0", flush="os") as broker:
        suite(broker, workloads(), 0.05, lambda name, clients, figures: found.update({(name, clients): figures}))
    assert set(found) == {(each.name, clients) for each in workloads() for clients in CONNECTIONS}
    for (name, _), figures in found.items():
        assert figures.requests_per_s > 0, name
        records = next(each.records for each in workloads() if each.name == name)
        assert figures.records_per_s == pytest.approx(figures.requests_per_s * records)


def test_a_refusal_is_no_answer() -> None:
    nowhere = Workload("nowhere", get("/nowhere"), 0)
    with Broker(http="127.0.0.1:0", flush="os") as broker:
        host, _, port = broker.http.removeprefix("http://").partition(":")
        client = Client((host, int(port)), nowhere.request)
        with pytest.raises(BenchError, match="404"):
            run_for([client], 0.05)
        client.socket.close()
