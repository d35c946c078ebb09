"""Files that nothing here runs: the image and the compose file use settings that exist, workflows call what exists."""

import re
import shlex
from pathlib import Path

import yaml

from skidway.server.addresses import parse_nodes
from skidway.server.config import load_settings

ROOT = Path(__file__).parents[2]
ENV = re.compile(r"^ENV (.+)$", re.MULTILINE)


def image_environment() -> dict[str, str]:
    words = [word for line in ENV.findall((ROOT / "Dockerfile").read_text()) for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words)


def test_the_image_serves_on_all_addresses_with_settings_that_exist() -> None:
    settings = load_settings(environment=image_environment())
    assert (settings.listen, settings.advertise) == ("0.0.0.0:9092", "127.0.0.1:9092")
    volume = re.search(r"^VOLUME (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert volume is not None
    assert Path(volume[1]) in Path(settings.data_dir).parents


def test_compose_describes_three_nodes_of_one_cluster() -> None:
    described = yaml.safe_load((ROOT / "compose.yaml").read_text())
    nodes = {
        name: load_settings(environment=image_environment() | service["environment"])
        for name, service in described["services"].items()
    }
    assert {name: settings.node_id for name, settings in nodes.items()} == {"node-1": 1, "node-2": 2, "node-3": 3}
    assert len({settings.cluster_id for settings in nodes.values()}) == 1
    for name, settings in nodes.items():
        voters = parse_nodes(settings.voters or "")
        assert str(voters[settings.node_id]) == settings.advertise == f"{name}:9092"
        assert described["services"][name]["volumes"] == [f"{name}:/var/lib/skidway"]
        assert name in described["volumes"]


def test_workflows_call_targets_that_exist() -> None:
    targets = set(re.findall(r"^## (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
        called = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        assert called
        for command in called:
            words = command.split()
            known = words[1] in targets if words[0] == "make" else (ROOT / words[-1]).is_file()
            assert known, f"{workflow.name}: {command}"
