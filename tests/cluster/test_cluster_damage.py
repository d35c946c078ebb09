"""A copy is damaged on its disk: another replica leads, the copy is fetched anew, nothing acknowledged is lost."""

import shutil
from pathlib import Path

from cluster_calls import ANY_TIME, SMALL, await_leader, create_topic, described, elect_preferred_leaders
from cluster_history import History, Writer
from loaded import loaded
from replica_files import assert_replicas_equal, await_in_sync

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.errors import ClientError
from skidway.blocking_client.groups import Groups
from skidway.broker.coordinators.groups import OFFSETS_TOPIC
from skidway.groups.placement import partition_of
from skidway.records.batch import HEADER_BYTES, iter_headers
from skidway.testing import Cluster
from waiting import comes_true, eventually

MESSAGES = 600


def segments(cluster: Cluster, node: int, topic: str) -> list[Path]:
    return sorted((cluster[node].data_dir / f"{topic}-0").glob("*.log"))


def flip_a_byte(path: Path) -> None:
    """Of a record in the middle."""
    stored = bytearray(path.read_bytes())
    positions = [position for position, _ in iter_headers(stored)]
    stored[positions[len(positions) // 2] + HEADER_BYTES] ^= 0x55
    path.write_bytes(stored)


def test_a_leader_with_a_flipped_byte_hands_over_when_a_follower_comes_upon_it(cluster: Cluster, topic: str) -> None:
    with loaded(cluster, topic, partitions=1, rate=500.0) as load:
        preferred, *others = described(cluster, topic, 0).replicas
        eventually(lambda: len(segments(cluster, preferred, topic)) > 1, 60)
        cluster.stop(preferred)
        flip_a_byte(segments(cluster, preferred, topic)[0])
        cluster.start(preferred)
        await_in_sync(cluster, load.places)
        elect_preferred_leaders(cluster)
        eventually(lambda: described(cluster, topic, 0).leader == preferred)
        load.goes_on()
        empty = others[0]
        cluster.kill(empty)
        shutil.rmtree(cluster[empty].data_dir / f"{topic}-0")
        cluster.start(empty)
        assert await_leader(cluster, topic, 0, other_than=preferred) == others[1], "the one that has everything"
        await_in_sync(cluster, load.places)
        assert f"{topic}-0: damaged, will be fetched again" in cluster[preferred].output
    # All that was acknowledged was read again, and the copies are equal, the one that was damaged too.


def test_one_that_is_elected_with_a_damaged_copy_leaves_the_lead_to_the_other(cluster: Cluster, topic: str) -> None:
    settings = {**SMALL, **ANY_TIME, "min.insync.replicas": "2"}
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic(topic, partitions=1, replication=2, configs=settings)
    history = History()
    with Writer(cluster.bootstrap, history, topic, topic, 1) as writer:
        eventually(lambda: history.count >= MESSAGES, 60)
        writer.finish()
    damaged, other = described(cluster, topic, 0).replicas
    cluster.stop(other)
    cluster.stop(damaged)
    last = segments(cluster, damaged, topic)[-1]
    last.write_bytes(last.read_bytes()[:100])
    cluster.start(damaged)
    eventually(lambda: f"quarantined: the broker neither serves nor truncates it: {topic}-0" in cluster[damaged].output)
    cluster.start(other)
    assert await_leader(cluster, topic, 0, other_than=damaged) == other
    await_in_sync(cluster, [(topic, 0)])
    elect_preferred_leaders(cluster)
    assert comes_true(lambda: described(cluster, topic, 0).leader == damaged), "it is as good as any by now"
    assert history.check(cluster.bootstrap) == writer.sent
    assert assert_replicas_equal(cluster, [(topic, 0)]) > 0


def test_groups_whose_offsets_are_damaged_on_one_node_are_coordinated_by_another(cluster: Cluster, topic: str) -> None:
    place = (topic, 0)
    create_topic(cluster, topic, partitions=1)
    with Client(cluster.bootstrap) as client:
        for offset in range(5):
            Groups(client).commit(topic, {place: offset})
        of_offsets = client.look_up(OFFSETS_TOPIC)
        number = partition_of(topic, len(of_offsets.partitions))
        preferred = of_offsets.partitions[number].replicas[0]
    await_in_sync(cluster, [(OFFSETS_TOPIC, number)])
    cluster.stop(preferred)
    flip_a_byte(sorted((cluster[preferred].data_dir / f"{OFFSETS_TOPIC}-{number}").glob("*.log"))[0])
    cluster.start(preferred)
    await_in_sync(cluster, [(OFFSETS_TOPIC, number)])
    elect_preferred_leaders(cluster)
    eventually(lambda: "cannot load groups" in cluster[preferred].output)
    await_leader(cluster, OFFSETS_TOPIC, number, other_than=preferred)

    def is_known() -> bool:
        try:
            with Client(cluster.bootstrap) as client:
                return Groups(client).committed(topic)[place].offset == 4
        except ClientError:
            return False

    eventually(is_known, 60)
    assert assert_replicas_equal(cluster, [(OFFSETS_TOPIC, number)]) > 0
    elect_preferred_leaders(cluster)
    eventually(lambda: described(cluster, OFFSETS_TOPIC, number).leader == preferred)
    assert comes_true(is_known, 60), "it is as good as any by now"
