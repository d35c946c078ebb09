"""The tables of admin calls name every method of the admin clients, and those that do not work are those tested."""

import re
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient

from kafka import KafkaAdminClient

ROOT = Path(__file__).parents[2]
CLIENTS = {"confluent-kafka": AdminClient, "kafka-python": KafkaAdminClient, "aiokafka": AIOKafkaAdminClient}


def told(client: str) -> dict[str, str]:
    text = (ROOT / "docs" / "reference" / "admin.md").read_text()
    section = text.split(f"\n## {client}\n", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([a-z ]+) \|", section, re.MULTILINE))


@pytest.mark.parametrize("client", CLIENTS)
def test_every_method_is_in_the_table(client: str) -> None:
    public = {name for name in dir(CLIENTS[client]) if not name.startswith("_")}
    assert told(client).keys() == {name for name in public if callable(getattr(CLIENTS[client], name))}


def test_what_does_not_work_is_what_is_tested_not_to() -> None:
    tests = (ROOT / "tests" / "conformance" / "admin" / "test_admin_not_yet.py").read_text()
    for client, table in (("confluent-kafka", "CONFLUENT"), ("kafka-python", "PYTHON")):
        tested = re.search(rf"^{table}: .*?^}}", tests, re.MULTILINE | re.DOTALL)
        assert tested is not None
        names = set(re.findall(r'^    "(\w+)": lambda', tested[0], re.MULTILINE))
        assert names == {name for name, works in told(client).items() if works == "not yet"}
    assert "not yet" not in told("aiokafka").values()
