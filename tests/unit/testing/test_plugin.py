"""The pytest plugin in pytest runs of their own."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

# What only the fixtures need, and what nobody who does not ask for a broker should pay for.
HEAVY = ("skidway.client", "skidway.wire", "skidway.records", "skidway.server", "skidway.testing.broker", "subprocess")


def test_the_plugin_costs_nothing_to_those_who_do_not_use_it() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules); import skidway.testing.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "skidway.testing.plugin" in loaded
    assert not [module for module in loaded if module.startswith(HEAVY)]
    assert len(loaded) < 12


def test_it_is_installed_as_a_plugin(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_subprocess("--fixtures")
    for fixture in ("broker", "fresh_broker", "kafka_topic", "share_group", "broker_settings", "cluster"):
        shown.stdout.re_match_lines([rf"{fixture}(?: \[session scope\])? -- .*skidway.*plugin\.py.*"])


def test_shared_fresh_and_configured_brokers(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def broker_settings():
            return {"node_id": 5}
        """
    )
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka import ShareConsumer
        from skidway.blocking_client.cluster import Cluster
        from skidway.blocking_client.producer import Producer

        seen = []

        def nodes(broker):
            with Cluster(broker.bootstrap) as cluster:
                return list(cluster.refresh([]).brokers)

        def test_one(broker, kafka_topic):
            seen.append((broker.pid, kafka_topic))
            assert nodes(broker) == [5]
            with Cluster(broker.bootstrap) as cluster:
                assert Producer(cluster).send_now(kafka_topic, b"x") == (0, 0)

        def test_two(broker, kafka_topic):
            seen.append((broker.pid, kafka_topic))
            assert seen[0][0] == seen[1][0], "one broker for the session"
            assert seen[0][1] != seen[1][1], "a topic for each test"

        def test_a_share_group_begins_at_the_beginning(broker, kafka_topic, share_group):
            with Cluster(broker.bootstrap) as cluster:
                Producer(cluster).send_now(kafka_topic, b"x")
            consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": share_group})
            consumer.subscribe([kafka_topic])
            while not (messages := consumer.poll(1.0)):
                pass
            assert [message.value() for message in messages] == [b"x"]
            consumer.close()

        def test_fresh(broker, fresh_broker):
            assert fresh_broker.pid != broker.pid
            assert nodes(fresh_broker) == [5]

        @pytest.mark.skidway(node_id=9)
        def test_marked(fresh_broker):
            assert nodes(fresh_broker) == [9]
        """
    )
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=5)
