"""The load generator counts what was acknowledged, and stops at the first thing that is wrong."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from bench import frames, load
from bench.frames import BenchError, Peer
from stub_broker import Faults, StubServer

Start = Callable[..., StubServer]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[StubServer] = []

    def begin(**faults: float) -> StubServer:
        server = StubServer(faults=Faults(**faults))  # type: ignore[arg-type]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        running.append(server)
        return server

    yield begin
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture(params=["C", "Python"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python":
        monkeypatch.setattr(load, "native", lambda: None)
    elif load.native() is None:
        pytest.skip("no gcc here")


BATCH = frames.batch(100, bytes_max=4096)


def blast(server: StubServer, seconds: float = 0.2) -> load.Acked:
    requests = [frames.produce("t", partition, BATCH.data, acks=1) for partition in range(3)]
    error_at = frames.produce_error_at("t")
    return load.produce_load(server.bootstrap, requests, error_at=error_at, depth=5, seconds=seconds)


def test_every_acknowledged_message_is_counted_once(start: Start) -> None:
    server = start()
    acked = blast(server)
    with Peer(server.bootstrap) as peer:
        present = sum(peer.end_offset("t", partition) for partition in range(3))
    assert acked.requests > 10
    assert present == acked.requests * BATCH.records


def test_one_error_code_among_many_replies_stops_the_run(start: Start) -> None:
    with pytest.raises(BenchError, match="error code 56"):
        blast(start(error_at=40, error_code=56), seconds=60)


def test_a_reply_to_another_request_stops_the_run(start: Start) -> None:
    with pytest.raises(BenchError, match="correlation id"):
        blast(start(correlation_at=40), seconds=60)


def test_a_closed_connection_stops_the_run(start: Start) -> None:
    with pytest.raises((BenchError, ConnectionError)):
        blast(start(close_at=40), seconds=60)


def test_a_pause_of_the_broker_delays_every_message_that_was_due_meanwhile(start: Start) -> None:
    server = start(pause_at=50, pause_s=0.3)
    began = time.monotonic()
    one = frames.produce("t", 0, frames.batch(100, records=1).data, acks=1)
    taken = load.latency_load(server.bootstrap, [one], error_at=frames.produce_error_at("t"), rate=200, count=200)
    elapsed_ms = (time.monotonic() - began) * 1000
    # 0.3 s at 200 messages a second: about 60 messages became due in the pause, not just the one that met it.
    assert sum(latency > 20 for latency in taken.reply_ms) >= 50
    assert 0 < taken.reply_ms[0] < 300 <= taken.reply_ms[-1] <= elapsed_ms


def test_fetches_walk_through_the_partition_and_start_over(start: Start) -> None:
    server = start()
    blast(server)
    prepared = [frames.fetch("t", partition, max_bytes=20_000) for partition in range(3)]
    with Peer(server.bootstrap) as peer:
        ends = [peer.end_offset("t", partition) for partition in range(3)]
    plan = load.FetchPlan(
        [one.data for one in prepared],
        ends,
        prepared[0].offset_at,
        frames.fetch_error_at("t"),
        frames.fetch_records_at("t"),
        len(BATCH.data),
        BATCH.records,
    )
    seconds, got = 0.1, load.Fetched(0, 0, 0, 0)
    while got.replies <= 10 and seconds < 60:
        seconds *= 2
        got = load.fetch_load(server.bootstrap, plan, seconds=seconds)
    assert got.records == got.bytes // len(BATCH.data) * BATCH.records
    assert got.replies <= got.records // BATCH.records <= got.replies * 4
    assert got.replies > 10
