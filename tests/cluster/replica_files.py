"""The logs of all replicas, compared byte by byte as they lie on the disks."""

from collections.abc import Iterable
from pathlib import Path

from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.errors import ClientError
from skidway.blocking_client.offsets import LATEST, find_offsets
from skidway.records.batch import crc_matches, iter_headers
from skidway.testing import Cluster
from waiting import comes_true

Place = tuple[str, int]
PATIENCE_S = 60.0


def batches_of(folder: Path, end: int) -> list[bytes]:
    """Whole batches below an offset; where segments begin is each replica's own affair."""
    found = []
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        for position, header in iter_headers(data):
            if header.base_offset < end:
                found.append(data[position : position + header.size])
    return found


def first_difference(mine: list[bytes], others: list[bytes]) -> str:
    for number, (one, other) in enumerate(zip(mine, others, strict=False)):
        if one != other:
            return f"batch {number} is {one[:61].hex()} here and {other[:61].hex()} there"
    return f"{len(mine)} batches here, {len(others)} there"


def await_in_sync(cluster: Cluster, places: Iterable[Place]) -> None:
    """Every replica of every place is in sync again."""
    wanted = sorted(places)
    last: list[object] = []

    def in_sync() -> bool:
        last[:] = []
        try:
            with Client(cluster.bootstrap, timeout_ms=5_000) as client:
                topics = client.refresh({topic for topic, _ in wanted}).topics
                for topic, index in wanted:
                    partition = topics[topic].partitions[index]
                    if partition.leader < 0 or set(partition.in_sync) != set(partition.replicas):
                        last.append((topic, partition))
        except (ClientError, KeyError) as error:
            last.append(error)
        return not last

    assert comes_true(in_sync, PATIENCE_S), f"not all replicas are in sync: {last}"


def assert_replicas_equal(cluster: Cluster, places: Iterable[Place]) -> int:
    """Below the high watermark all replicas hold the same bytes; returns how many bytes of each."""
    wanted = sorted(places)
    await_in_sync(cluster, wanted)
    compared = 0
    with Client(cluster.bootstrap) as client:
        replicas = {place: client.look_up(place[0]).partitions[place[1]].replicas for place in wanted}
        for place in wanted:
            watermark = find_offsets(client, place[0], {place[1]: LATEST})[place[1]]
            compared += _compare(cluster, place, replicas[place], watermark)
    return compared


def _compare(cluster: Cluster, place: Place, replicas: list[int], watermark: int) -> int:
    folder = f"{place[0]}-{place[1]}"
    logs = {node: batches_of(cluster[node].data_dir / folder, watermark) for node in replicas}
    first, *others = replicas
    bad = [header for header in map(bytes, logs[first]) if not crc_matches(header)]
    assert not bad, f"{folder} on node {first} has a batch whose checksum is wrong"
    for node in others:
        assert logs[node] == logs[first], f"{folder}: nodes {first} and {node}: " + first_difference(
            logs[first], logs[node]
        )
    return sum(map(len, logs[first]))
