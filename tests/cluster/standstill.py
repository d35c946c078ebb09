"""What can be found out about a producer that gets no more acknowledgements, before the cluster is gone."""

import subprocess
import sys
from collections import deque
from logging import DEBUG, Handler, Logger, LogRecord

from confluent_kafka import Producer

from skidway.testing import Cluster

LINES_KEPT = 3_000
NOISE = "Connection refused"
PROBE_MS = 8_000
PRINTED_MAX = 6_000


class LastWords(Handler):
    """The last lines of what librdkafka says about its producer's state."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)

    def emit(self, record: LogRecord) -> None:
        line = record.getMessage()
        if NOISE not in line:
            self.lines.append(f"{record.created:.3f} {line}")

    @property
    def settings(self) -> dict[str, object]:
        """For a client: its logger is called from `poll`."""
        logger = Logger("librdkafka", DEBUG)
        logger.addHandler(self)
        return {"debug": "eos,metadata", "log_level": 7, "logger": logger}


def describe(cluster: Cluster, topic: str, partitions: int, words: LastWords) -> str:
    """Everything in one text: the client's words, the nodes', and whether somebody else can write."""
    parts = ["librdkafka said:", *words.lines, "the nodes printed:"]
    parts += [broker.output[-PRINTED_MAX:] for broker in cluster.brokers.values()]
    for command in (["cluster", "describe"], ["topic", "describe", topic]):
        parts += [f"{' '.join(command)}:", _run([*command, "--bootstrap", cluster.bootstrap])]
    for idempotent in (True, False):
        parts.append(f"another producer, idempotent {idempotent}: {_probe(cluster, topic, partitions, idempotent)}")
    return "\n".join(parts)


def _run(arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "skidway", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def _probe(cluster: Cluster, topic: str, partitions: int, idempotent: bool) -> list[str]:
    told: list[str] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": PROBE_MS}
    producer = Producer({**settings, "enable.idempotence": idempotent})
    for partition in range(partitions):
        # Of the form that `cluster_history` looks for, although nobody will look at this history any more.
        producer.produce(topic, b"probe:0:", partition=partition, on_delivery=lambda error, _: told.append(str(error)))
    producer.flush(PROBE_MS / 1_000 + 2)
    return told
