"""Strangers who speak as nodes and write to the store of a queue: it goes on delivering."""

from typing import Any

import pytest
from broker_world import part
from http_world import HttpWorld, request
from test_http_queues import Shop

from skidway.errors import ErrorCode
from skidway.shares.queue_groups import group_of
from skidway.wire.schema.share_records import Term, TermNotes

IDLE_MS = 130_000
"""After that the queue is forgotten, and loaded again by whoever uses it next."""


def told(world: HttpWorld, name: str, data: str, **entry: Any) -> ErrorCode:
    topic = world.node.image.topics["orders"]
    partition = part(name, "PartitionData", partition=0, **entry)
    reply = world.peer().call(name, group_id=group_of("orders"), topics=[part(name, data, topic.id, [partition])])
    return ErrorCode(reply.results[0].partitions[0].error_code)


def written(world: HttpWorld, **entry: Any) -> ErrorCode:
    epoch = world.node.image.topics["orders"].partitions[0].leader_epoch
    return told(world, "WriteShareGroupState", "WriteStateData", state_epoch=0, leader_epoch=epoch, **entry)


def batch(first: int, last: int, state: int = 2) -> list[Any]:
    return [part("WriteShareGroupState", "StateBatch", first, last, state, 1)]


@pytest.mark.parametrize(
    "entry",
    [
        {"start_offset": 2**60, "state_batches": []},
        {"start_offset": 900_000, "state_batches": batch(900_001, 900_010)},
        {"start_offset": 0, "state_batches": batch(5, 900_000)},
    ],
)
def test_what_is_stored_about_messages_that_never_were_is_forgotten(entry: dict[str, Any]) -> None:
    shop = Shop()
    shop.send("a", "b")
    first, second = shop.receive()
    assert shop.ack(receipt=first["receipt"]).status == 200
    assert written(shop.world, **entry) is ErrorCode.NONE
    shop.pass_ms(IDLE_MS)
    shop.pass_ms(IDLE_MS)
    assert shop.bodies() == ([] if entry["start_offset"] else ["b"]), "settled messages stay so"
    for body in ("c", "d", "e", "f"):
        shop.send(body)
    received = shop.receive()
    assert [each["body"] for each in received] == ["c", "d", "e", "f"]
    shop.ack(acks=[{"receipt": each["receipt"]} for each in received])
    shop.pass_ms(IDLE_MS)
    shop.pass_ms(IDLE_MS)
    assert shop.bodies() == ([] if entry["start_offset"] else ["b"]), "what was settled since is stored"
    assert second["body"] == "b"


def test_nobody_reads_for_a_leader_that_is_still_to_come() -> None:
    shop = Shop()
    shop.send("a")
    epoch = shop.world.node.image.topics["orders"].partitions[0].leader_epoch
    read = told(shop.world, "ReadShareGroupState", "ReadStateData", leader_epoch=epoch + 1)
    assert read is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert shop.bodies() == ["a"]


def test_a_batch_without_an_end_is_refused() -> None:
    shop = Shop()
    shop.send("a")
    shop.receive(visibility=1_000)
    assert written(shop.world, start_offset=0, state_batches=batch(0, 2**63 - 1)) is ErrorCode.INVALID_REQUEST
    shop.pass_ms(IDLE_MS)
    shop.pass_ms(IDLE_MS)
    assert shop.bodies() == ["a"]


def test_leases_survive_that_what_a_stranger_wrote_is_forgotten() -> None:
    """A FIFO queue, whose leases are stored, in whose store a stranger has written of what never was."""
    shop = Shop()
    shop.ask("PUT", "/v1/queues/orders", {"type": "fifo"})
    for group in "ab":
        shop.send(group, groupId=group, dedupId=group)
    first, second = shop.receive(visibility=600_000)
    lease = Term(7, 8, 1, 1, 2**40, 1_000, "x")
    ahead = [TermNotes(2**32, [lease])]
    assert written(shop.world, start_offset=0, state_batches=batch(500, 900), terms=ahead) is ErrorCode.NONE
    shop.pass_ms(IDLE_MS)
    shop.pass_ms(IDLE_MS)
    assert shop.bodies() == [], "they are still with their receivers"
    assert shop.ack(receipt=first["receipt"]).status == 200
    for number in range(12):
        shop.send(f"{number}", groupId=f"{number}", dedupId=f"{number}")
    peer = shop.world.http()
    peer.give(request("GET", "/messages?queue=orders&max=20"))
    peer.settle()
    for _ in range(20):
        shop.pass_ms(100)  # the leader finds out, reads the store again, and is asked again
        peer.settle()
    (answer,) = peer.answers()
    assert len(answer.json()["messages"]) == 12
    assert shop.ack(receipt=second["receipt"]).status == 200
