"""The good client of attacks on groups: two consumers in two groups, one of each protocol, in a process of its own.

A round is a message produced, read by both, and its offset committed by both. None of them may lose its place.
"""

import json
import os
import select
import sys
import time
from dataclasses import asdict
from typing import Any

from attack import ANSWER_TIMEOUT_S, GOOD_TOPIC, PROBE_PAUSE_S, Served, resident_bytes
from confluent_kafka import Consumer, Producer


class Member:
    def __init__(self, bootstrap: str, protocol: str) -> None:
        self.losses = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                # A group of its own: one that died with a test before is not waited for.
                "group.id": f"good-{protocol}-{os.getpid()}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.consumer.subscribe([GOOD_TOPIC], on_revoke=self._on_loss, on_lost=self._on_loss)

    def _on_loss(self, consumer: Any, partitions: Any) -> None:
        self.losses += 1

    def reads(self, value: bytes) -> None:
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while time.monotonic() < deadline:
            message = self.consumer.poll(0.5)
            if message is None:
                continue
            assert message.error() is None, message.error()
            if message.value() == value:
                committed = self.consumer.commit(message=message, asynchronous=False)
                assert committed[0].error is None, committed
                assert self.losses == 0, "the good member lost its partition"
                return
        raise AssertionError(f"{value!r} was not read")


def be_good(bootstrap: str, pid: int) -> Served:
    served = Served()
    try:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        members = [Member(bootstrap, protocol) for protocol in ("classic", "consumer")]
        _round(producer, members)
        print("ready", flush=True)
        over = False
        while not over:
            over = bool(select.select([sys.stdin], [], [], PROBE_PAUSE_S)[0])
            began = time.monotonic()
            _round(producer, members)
            served.worst_s = max(served.worst_s, time.monotonic() - began)
            served.rounds += 1
            served.resident_bytes_max = max(served.resident_bytes_max, resident_bytes(pid))
        for member in members:
            member.consumer.close()
    except Exception as error:
        served.error = repr(error)
    return served


def _round(producer: Producer, members: list[Member]) -> None:
    value = str(time.monotonic_ns()).encode()
    producer.produce(GOOD_TOPIC, value)
    assert producer.flush(ANSWER_TIMEOUT_S) == 0, "the good producer is not answered"
    for member in members:
        member.reads(value)


if __name__ == "__main__":
    print(json.dumps(asdict(be_good(f"{sys.argv[1]}:{sys.argv[2]}", int(sys.argv[3])))))
