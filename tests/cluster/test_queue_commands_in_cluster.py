"""`skidway queue` where three nodes lead a queue: it asks them all, and goes on when one of them is killed."""

import json

from cluster_calls import await_leader
from replica_files import await_in_sync
from typer.testing import CliRunner

from skidway.cli.commands.queue import app
from skidway.testing import Cluster

MESSAGES = 60


def test_a_queue_led_by_three_nodes_of_which_one_is_killed(cluster: Cluster, topic: str) -> None:
    def run(*words: str, stdin: str = "") -> str:
        result = CliRunner().invoke(app, [*words, "-b", cluster.bootstrap], input=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def counts() -> tuple[int, int]:
        (document,) = json.loads(run("describe", topic, "--json"))
        return document["visible"], document["in_flight"]

    run("create", topic, "-p", "3", "-r", "3", "--max-receives", "0")
    leaders = {cluster.leader_of(topic, partition) for partition in range(3)}
    assert len(leaders) == 3
    bodies = [str(number) for number in range(MESSAGES)]
    for number in range(10):
        run("send", topic, *bodies[number::10], "--key", str(number))
    assert counts() == (MESSAGES, 0)
    peeked = [json.loads(line) for line in run("peek", topic, "-n", "100", "--json").splitlines()]
    assert {each["value"] for each in peeked} == set(bodies)
    assert {each["partition"] for each in peeked} == {0, 1, 2}
    received = run("receive", topic, "-n", "20").splitlines()

    killed = cluster.leader_of(topic, 0)
    cluster.kill(killed)
    assert await_leader(cluster, topic, 0, other_than=killed) in cluster.brokers
    received += run("receive", topic, "-n", "100", "--wait", "5").splitlines()
    # What was deleted does not come again, whoever leads now.
    assert sorted(received, key=int) == bodies
    assert counts() == (0, 0)
    cluster.start(killed)
    await_in_sync(cluster, [(topic, partition) for partition in range(3)])
    run("send", topic, "late", "--key", "k")
    run("purge", topic, "--yes")
    assert counts() == (0, 0)
