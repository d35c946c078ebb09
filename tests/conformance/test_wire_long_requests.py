"""Over raw sockets: requests that the broker answers in parts, and what other requests and clients see of them."""

import select

from raw import Connection

PARTITIONS = 40_000
"""Named in one request: far more than fit into one turn of the event loop."""


def long_request() -> dict[str, object]:
    asked = [{"partition_index": index, "timestamp": -1, "current_leader_epoch": -1} for index in range(PARTITIONS)]
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "nowhere", "partitions": asked}]}


def has_answer(connection: Connection) -> bool:
    return bool(select.select([connection.socket], [], [], 0)[0])


def test_replies_of_one_connection_come_in_the_order_of_their_requests(bootstrap: str) -> None:
    with Connection(bootstrap) as wire:
        first = wire.send("ListOffsets", 7, long_request())
        second = wire.send("ApiVersions", 0)
        third = wire.send("Metadata", 9, {"topics": []})
        correlation_id, answer = wire.receive("ListOffsets", 7)
        assert correlation_id == first
        assert [each["partition_index"] for each in answer["topics"][0]["partitions"]] == list(range(PARTITIONS))
        assert wire.receive("ApiVersions", 0)[0] == second
        assert wire.receive("Metadata", 9)[0] == third


def test_other_clients_are_served_while_a_long_request_is_worked_on(bootstrap: str, wire: Connection) -> None:
    """Counted are answers in between. This process may be stopped for as long as the long request takes, so it has
    several attempts; a broker that serves nobody in between fails all of them."""
    wire.call("ApiVersions", 0)
    served: list[int] = []
    while max(served, default=0) <= 3 and len(served) < 5:
        with Connection(bootstrap) as busy:
            busy.send("ListOffsets", 7, long_request())
            served.append(0)
            while not has_answer(busy):
                wire.call("ApiVersions", 0)
                served[-1] += 1
            busy.receive("ListOffsets", 7)
    assert max(served) > 3


def test_a_client_that_leaves_in_the_middle_of_a_long_request_disturbs_nobody(bootstrap: str, wire: Connection) -> None:
    for _ in range(2):
        with Connection(bootstrap) as leaving:
            leaving.send("ListOffsets", 7, long_request())
            wire.call("ApiVersions", 0)
    assert wire.call("ListOffsets", 7, long_request())["topics"][0]["name"] == "nowhere"
