"""How many brokers a load needs, and how much disk and network: plain formulas, told in docs/guide/cluster.md.

What a node can do comes from this project's benchmarks (bench/RESULTS.md, the slower of two machines, flush=sync): a
produce request costs so much by itself and so much for each byte, sending to consumers costs so much for each byte.
A follower is reckoned like a leader: it appends the same bytes.
"""

from dataclasses import dataclass, field
from math import ceil

# 199 MB/s in batches of 16 KB and 686 MB/s in batches of 128 KB, one node busy with nothing else.
REQUEST_S = 65e-6
APPEND_S_PER_BYTE = 0.93e-9
SEND_S_PER_BYTE = 1 / 2_500e6
INDEX_SHARE = 0.005
"""Of the data: 20 bytes of index for every 4 KiB."""
PARTITION_RATE = 10e6
"""Bytes a second that one partition should get at most, so that one consumer keeps up."""
CACHE_S = 300
"""So long what was written should stay in memory, for consumers that are a little behind."""


@dataclass(slots=True, kw_only=True)
class Load:
    messages_per_s: float
    message_bytes: float
    """With key and headers, as the producer compresses them."""
    retention_s: float
    replication: int = 3
    groups: int = 1
    """Consumer groups that read everything."""
    peak: float = 2.0
    """How much more than the average comes at the busiest time."""
    batch_bytes: int = 16 * 1024
    partitions: int | None = None
    """Of all topics together; None: a suggestion is made."""
    segment_bytes: int = 1 << 30


@dataclass(slots=True, kw_only=True)
class Machine:
    disk_bytes: float
    network_bytes_per_s: float
    """Each way."""


@dataclass(slots=True, kw_only=True)
class Margins:
    disk: float = 0.7
    """So much of a disk may be full."""
    network: float = 0.5
    cpu: float = 0.5
    spare_brokers: int = 1
    """So many may be down at the busiest time."""


@dataclass(slots=True, kw_only=True)
class Sizing:
    brokers: int
    because: str
    needs: dict[str, int] = field(default_factory=dict)
    """Brokers that each resource asks for by itself, spare ones included."""
    partitions: int
    disk_bytes: float
    """On all brokers, data and indexes, without the room that is to be left."""
    disk_bytes_per_broker: float
    in_bytes_per_s: float
    """From producers, at the busiest time."""
    received_bytes_per_s_per_broker: float
    sent_bytes_per_s_per_broker: float
    cpu_per_broker: float
    """Share of the one core that a node uses, at the busiest time, all brokers up."""
    cache_bytes_per_broker: float


def size_cluster(load: Load, machine: Machine, margins: Margins) -> Sizing:
    average = load.messages_per_s * load.message_bytes
    peak = average * load.peak
    received = peak * load.replication
    sent = peak * (load.groups + load.replication - 1)
    cpu = received * (REQUEST_S / load.batch_bytes + APPEND_S_PER_BYTE) + sent * SEND_S_PER_BYTE
    network = machine.network_bytes_per_s * margins.network
    # The rest carries the load while a broker is down. It holds no more data meanwhile: replicas stay where they are.
    needs = {
        "replication": load.replication,
        "network in": ceil(received / network) + margins.spare_brokers,
        "network out": ceil(sent / network) + margins.spare_brokers,
        "cpu": ceil(cpu / margins.cpu) + margins.spare_brokers,
    }
    partitions, disk = _disk(load, average, peak, max(needs.values()), machine.disk_bytes * margins.disk)
    needs["disk"] = ceil(disk / (machine.disk_bytes * margins.disk))
    brokers = max(needs.values())
    return Sizing(
        brokers=brokers,
        because=max(needs, key=lambda name: needs[name]),
        needs=needs,
        partitions=partitions,
        disk_bytes=disk,
        disk_bytes_per_broker=disk / brokers,
        in_bytes_per_s=peak,
        received_bytes_per_s_per_broker=received / brokers,
        sent_bytes_per_s_per_broker=sent / brokers,
        cpu_per_broker=cpu / brokers,
        cache_bytes_per_broker=min(received * CACHE_S, disk) / brokers,
    )


def _disk(load: Load, average: float, peak: float, brokers: int, usable_bytes: float) -> tuple[int, float]:
    """Partitions and bytes on all disks. More brokers want more partitions, and these a little more disk."""
    stored = average * load.retention_s
    partitions = load.partitions or 0
    while True:
        wanted = load.partitions or max(partitions, brokers * max(1, ceil(peak / PARTITION_RATE / brokers)))
        # Retention drops whole segments, so each partition keeps up to one more than it must.
        slack = min(wanted * load.segment_bytes, stored)
        disk = (stored + slack) * load.replication * (1 + INDEX_SHARE)
        if wanted == partitions:
            return partitions, disk
        partitions, brokers = wanted, max(brokers, ceil(disk / usable_bytes))
