"""Load from a process of its own: `python produce_and_fetch.py host:port topic` writes and reads until stdin ends."""

import os
import sys
import threading

from raw import Connection
from raw_batches import build
from wire_calls import fetch, produce

BATCH = build([b"x" * 10_000] * 20)


def write(bootstrap: str, topic: str, partition: int) -> None:
    with Connection(bootstrap) as wire:
        while True:
            produce(wire, topic, BATCH, partition=partition)


def read(bootstrap: str, topic: str, partition: int) -> None:
    with Connection(bootstrap) as wire:
        while True:
            fetch(wire, topic, 0, partition=partition, max_wait_ms=100, partition_bytes=4_000_000)


if __name__ == "__main__":
    for partition in range(2):
        for work in (write, read):
            threading.Thread(target=work, args=(sys.argv[1], sys.argv[2], partition), daemon=True).start()
    print("loading", flush=True)
    sys.stdin.read()
    os._exit(0)
