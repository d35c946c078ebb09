"""An AWS SDK of another language at the SQS door: `python interop/sqs/doors.py javascript|java|go folder host:port`.

It starts two brokers of its own, so the one at host:port is not asked: one that takes every key, and one that wants the
signatures of one. The SDK gets nothing but the variables of its environment. Before it starts, a Kafka producer leaves
a record for it; when it is done, a Kafka consumer reads what it sent. Then the program of the guide runs.
Every check prints "ok <what>"; the first that fails ends the program with its reason. `folder` has what the SDK needs.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from skidway.testing import Broker

HERE = Path(__file__).parent.resolve()
GUIDE = HERE.parents[1] / "docs" / "guide" / "sqs.md"
TIMEOUT_S = 120
KEYS = "skidway-key:skidway-secret"
GUIDE_PRINTS = "resize 17.jpg 800\n"
Command = tuple[list[str], dict[str, str]]


def javascript(folder: Path) -> Command:
    return ["node", str(HERE / "js" / "interop.js")], {"NODE_PATH": str(folder / "node_modules")}


def javascript_guide(folder: Path, program: str, _: Path) -> Command:
    # Where `import` finds the packages.
    source = folder / "guide.mjs"
    source.write_text(program)
    return ["node", str(source)], {}


def java(folder: Path) -> Command:
    return ["java", "-cp", f"{folder}/*", str(HERE / "java" / "Sqs.java")], {}


def java_guide(folder: Path, program: str, place: Path) -> Command:
    """The guide has statements, and what they import."""
    lines = program.splitlines()
    imports = [line for line in lines if line.startswith("import ")]
    body = [line for line in lines if not line.startswith("import ")]
    source = place / "Guide.java"
    source.write_text("\n".join([*imports, "class Guide { public static void main(String[] args) {", *body, "}}"]))
    return ["java", "-cp", f"{folder}/*", str(source)], {}


def go(folder: Path) -> Command:
    return [str(folder / "sqs")], {}


def go_guide(_: Path, program: str, place: Path) -> Command:
    (place / "guide.go").write_text(program)
    build = ["go", "build", "-o", str(place / "guide"), str(place / "guide.go")]
    subprocess.run(build, cwd=HERE / "go", check=True, timeout=TIMEOUT_S)
    return [str(place / "guide")], {}


LANGUAGES: dict[str, tuple[Callable[[Path], Command], Callable[[Path, str, Path], Command]]] = {
    "javascript": (javascript, javascript_guide),
    "java": (java, java_guide),
    "go": (go, go_guide),
}


def environment(broker: Broker) -> dict[str, str]:
    """All that a program needs. Nothing of the machine's own settings for Amazon is left."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    nowhere = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    key = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    return {**kept, **nowhere, **key, "AWS_ENDPOINT_URL": broker.http, "AWS_REGION": "us-east-1"}


def leave_a_record(bootstrap: str) -> None:
    topic = NewTopic("from-kafka", 1, config={"queue.type": "standard"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])["from-kafka"].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("from-kafka", "by Kafka 😀".encode(), headers=[("text", b"plain"), ("raw", b"\xff\xfe")])
    assert producer.flush(TIMEOUT_S) == 0, "a record was not acknowledged"


def read_a_message(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "audit", "auto.offset.reset": "earliest"})
    consumer.subscribe(["to-kafka"])
    record = consumer.poll(TIMEOUT_S)
    assert record is not None, "nothing was found"
    assert record.error() is None, record.error()
    found = dict(record.headers() or [])
    headers = {name: found.get(name) for name in ("text", "size", "raw")}
    consumer.close()
    assert record.value() == "by SQS 😀".encode(), record.value()
    assert headers == {"text": b"plain", "size": b"17", "raw": b"\xff\xfe"}, headers


def guide_program(language: str) -> str:
    (program,) = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return str(program)


def main(language: str, folder: Path) -> int:
    suite, guide = LANGUAGES[language]
    keys = {"SKIDWAY_SQS_KEYS": KEYS}
    with (
        Broker(http="127.0.0.1:0") as broker,
        Broker(http="127.0.0.1:0", environment=keys) as signed,
        tempfile.TemporaryDirectory(prefix="skidway-sqs-") as place,
    ):
        leave_a_record(broker.bootstrap)
        given = {**environment(broker), "SIGNED_ENDPOINT_URL": signed.http}
        command, more = suite(folder)
        ended = subprocess.run(command, env={**given, **more}, timeout=TIMEOUT_S)
        if ended.returncode != 0:
            return ended.returncode
        read_a_message(broker.bootstrap)
        print("ok a Kafka consumer reads what the SDK sent, attributes as headers", flush=True)
        command, more = guide(folder, guide_program(language), Path(place))
        ran = subprocess.run(command, env={**given, **more}, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (ran.returncode, ran.stdout) == (0, GUIDE_PRINTS), f"{ran.returncode}: {ran.stdout}{ran.stderr}"
        print("ok the program of the guide", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], Path(sys.argv[2])))
    except AssertionError as problem:
        print(f"FAIL {problem}")
        sys.exit(1)
