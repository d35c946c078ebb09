"""Workers of a share group: each picture goes to one of them, what a crashed one held goes to another, and a picture
that cannot be read is tried three times and set aside.

Nobody divides the partition: there is one, and three workers read it at the same time.

    python examples/image_workers.py [BOOTSTRAP]
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from setting import BOOTSTRAP, new_topic

PICTURES = 12
BROKEN = "picture-7"
SIDE = 8
ATTEMPTS = 3
WORKERS = 3
PATIENCE_S = 120


def halved(pixels: bytes) -> bytes:
    """A square of grey pixels, half as wide and half as high: each is the mean of four."""
    if len(pixels) != SIDE * SIDE:
        raise ValueError(f"a picture has {SIDE * SIDE} pixels, not {len(pixels)}")
    rows = range(0, SIDE * SIDE, 2 * SIDE)
    corners = [row + column for row in rows for column in range(0, SIDE, 2)]
    return bytes(sum(pixels[at + step] for step in (0, 1, SIDE, SIDE + 1)) // 4 for at in corners)


def verdict(message: Message, folder: Path) -> AcknowledgeType:
    """Resizing twice does no harm, so the file is written first and the picture accepted afterwards."""
    try:
        small = halved(message.value() or b"")
    except ValueError:
        return AcknowledgeType.RELEASE if (message.delivery_count() or 1) < ATTEMPTS else AcknowledgeType.REJECT
    Path(folder, f"{name(message)}.small").write_bytes(small)
    return AcknowledgeType.ACCEPT


def name(message: Message) -> str:
    return (message.key() or b"").decode()


def work(topic: str, folder: Path, crashes: bool) -> None:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": topic,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 2,
        }
    )
    consumer.subscribe([topic])
    while not Path(folder, "done").exists():
        settled: dict[str, AcknowledgeType] = {}
        for message in consumer.poll(0.5):
            if message.error():
                continue
            if crashes:
                os._exit(9)  # with pictures in its hands, as a process that is killed
            if (message.delivery_count() or 1) > 1:
                Path(folder, f"{name(message)}.again").touch()
            settled[name(message)] = verdict(message, folder)
            consumer.acknowledge(message, settled[name(message)])
        failed = [error for error in consumer.commit_sync(30.0).values() if error is not None]
        for picture, type_ in settled.items():
            if not failed and type_ != AcknowledgeType.RELEASE:
                Path(folder, f"{picture}.{'accepted' if type_ == AcknowledgeType.ACCEPT else 'rejected'}").touch()
    consumer.close()


def start_at_the_beginning(group: str) -> None:
    """A share group would begin with what comes next; its own setting says otherwise."""
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    change = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group_settings = ConfigResource(ResourceType.GROUP, group, incremental_configs=[change])
    admin.incremental_alter_configs([group_settings])[group_settings].result(30)


def upload(topic: str) -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(PICTURES):
        picture = f"picture-{number}"
        pixels = b"torn" if picture == BROKEN else bytes(number + at for at in range(SIDE * SIDE))
        producer.produce(topic, pixels, picture)
        producer.poll(0)
    assert producer.flush(30) == 0


def hire(topic: str, folder: str, *, crashes: bool = False) -> "subprocess.Popen[bytes]":
    task = "crash" if crashes else "work"
    return subprocess.Popen([sys.executable, __file__, BOOTSTRAP, task, topic, folder])


def main() -> None:
    topic = new_topic()
    start_at_the_beginning(topic)
    upload(topic)
    with tempfile.TemporaryDirectory() as folder:
        crashing = hire(topic, folder, crashes=True)
        assert crashing.wait(PATIENCE_S) == 9
        workers = [hire(topic, folder) for _ in range(WORKERS)]
        ends = time.monotonic() + PATIENCE_S
        while len([*Path(folder).glob("*.accepted"), *Path(folder).glob("*.rejected")]) < PICTURES:
            assert time.monotonic() < ends, f"only {sorted(path.name for path in Path(folder).iterdir())}"
            time.sleep(0.1)
        Path(folder, "done").touch()
        assert [worker.wait(PATIENCE_S) for worker in workers] == [0] * WORKERS
        accepted, rejected = len([*Path(folder).glob("*.accepted")]), [*Path(folder).glob("*.rejected")]
        assert len([*Path(folder).glob("*.small")]) == accepted
        assert Path(folder, "picture-0.again").exists(), "the crashed worker had held it"
        print(f"{accepted} pictures resized, {len(rejected)} set aside after {ATTEMPTS} attempts: {rejected[0].stem}")


if len(sys.argv) > 2:
    work(sys.argv[3], Path(sys.argv[4]), sys.argv[2] == "crash")
else:
    main()
