"""A drained broker stays empty, whatever clients make and whoever controls the cluster."""

from confluent_kafka import Consumer, Producer

from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.cluster_admin import DRAINED, ClusterAdmin
from skidway.testing import Cluster
from waiting import eventually


def holders(cluster: Cluster, *topics: str) -> set[int]:
    with Client(cluster.bootstrap) as client:
        partitions = ClusterAdmin(client).partitions()
    assert {topic for topic, _ in partitions} >= set(topics)
    return {broker for (topic, _), partition in partitions.items() for broker in partition.replicas if topic in topics}


def is_drained(cluster: Cluster, asked: int, broker: int) -> bool:
    with Client(cluster[asked].bootstrap) as client:
        return ClusterAdmin(client).describe_cluster().brokers[broker].drained


def use(cluster: Cluster, topic: str) -> None:
    """Produce and consume as applications do: the topic, and the one for groups, come with the first use."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, b"value")
    assert producer.flush(60) == 0
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])

    def got() -> bool:
        message = consumer.poll(0.5)
        return message is not None and message.error() is None

    eventually(got, 60)
    consumer.close()


def test_nothing_new_comes_to_a_drained_broker() -> None:
    with Cluster(3, network=False, flush="os", default_partitions=6, default_replication_factor=2) as cluster:
        a_drained_broker_stays_empty(cluster)


def a_drained_broker_stays_empty(cluster: Cluster) -> None:
    drained = cluster.controller()
    others = {1, 2, 3} - {drained}
    with Client(cluster.bootstrap) as client:
        ClusterAdmin(client).keep_drained(drained, True)
    # Its restart is also a change of controllers.
    cluster.restart(drained)
    use(cluster, "orders")
    assert holders(cluster, "orders", "__consumer_offsets") == others

    # Every node knows it of every broker, also of one that is down.
    cluster.stop(drained)
    assert all(is_drained(cluster, asked, drained) for asked in others)
    with Client(cluster.bootstrap) as client:
        ClusterAdmin(client).unregister_broker(drained)
    cluster.start(drained)
    eventually(lambda: not is_drained(cluster, min(others), drained))
    with Client(cluster[drained].bootstrap) as client:
        configs = {config.name: config for config in ClusterAdmin(client).broker_configs(drained)}
    assert (configs[DRAINED].value, configs[DRAINED].is_set) == ("false", False)
    use(cluster, "payments")
    assert drained in holders(cluster, "payments")
