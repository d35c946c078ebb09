"""What the documents say about the code is held against the code, so that neither can move alone."""

import ast
import re
from pathlib import Path

import msgspec.structs
import pytest

from skidway.broker.api.router import Routes
from skidway.broker.api.table import SERVED
from skidway.cli.main import COMMANDS
from skidway.groups.settings import GroupSettings
from skidway.limits import DEFAULT_LIMITS
from skidway.metadata.broker_configs import describe_broker
from skidway.metadata.group_configs import GROUP_KEYS
from skidway.metadata.idle_configs import IDLE_KEYS
from skidway.metadata.topic_configs import TOPIC_KEYS
from skidway.quorum.settings import QuorumSettings
from skidway.server.config import (
    GROUP_NAMES,
    LISTENER_NAMES,
    QUORUM_NAMES,
    SHARE_NAMES,
    TABLES,
    TRANSACTION_NAMES,
    Settings,
)
from skidway.server.flags import build_parser
from skidway.server.listening import ListenerSettings
from skidway.shares.coordinator.settings import ShareCoordinatorSettings
from skidway.transactions.settings import TransactionSettings
from skidway.wire.registry import APIS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
FOLDERS = ("docs", "bench", ".github")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE_LINE = re.compile(r"^  (\w+)/")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def table(document: str, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without the backquotes around names."""
    section = (REFERENCE / document).read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    prose = CODE_BLOCK.sub("", path.read_text())
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_served_apis_are_those_of_the_router() -> None:
    versions = Routes(1).advertised
    told = {(int(key), name, served) for key, name, served, _ in table("protocol.md", "Served")}
    assert told == {(key, APIS[key], f"{versions[key][0]}–{versions[key][1]}") for key in versions}


def test_every_api_that_is_not_served_is_listed() -> None:
    section = (REFERENCE / "protocol.md").read_text().split("\n## Not served\n", 1)[1].split("\n## ", 1)[0]
    told = {(int(key), name) for name, key in re.findall(r"(\w+) \((\d+)\)", section)}
    assert told == {(key, name) for key, name in APIS.items() if key not in SERVED}


def test_topic_configs_are_told_with_their_defaults() -> None:
    told = {name: default for name, default, *_ in table("topic-configs.md", "Obeyed")}
    assert told == {key.name: key.default or "(empty)" for key in TOPIC_KEYS.values() if not key.refusal}


def test_refused_topic_configs_are_told_with_the_reason() -> None:
    told = {name: (default, reason) for name, default, reason in table("topic-configs.md", "Refused")}
    expected = {
        key.name: (key.default or "(empty)", key.refusal.replace("`", "")) for key in TOPIC_KEYS.values() if key.refusal
    }
    assert told == expected


def test_the_broker_names_of_topic_configs_are_right() -> None:
    rows = table("topic-configs.md", "Obeyed")
    told = {name: [broker.strip(" `") for broker in brokers.split(",") if broker] for name, _, brokers, _ in rows}
    assert told == {
        key.name: [broker.name for broker in key.broker_names] for key in TOPIC_KEYS.values() if not key.refusal
    }


def test_broker_configs_are_told_with_their_defaults() -> None:
    headings = ("Changed at run time, with effect", "Read at the start, with effect", "Known, without effect")
    dynamic, fixed, idle = (table("broker-configs.md", heading) for heading in headings)
    shown = {None: "(none)", "": "(empty)"}
    entries = describe_broker()
    assert {row[0]: row[1] for row in [*dynamic, *fixed, *idle]} == {
        entry.name: shown.get(entry.value, entry.value) for entry in entries
    }
    obeyed = [entry for entry in entries if entry.name not in IDLE_KEYS]
    assert {row[0] for row in dynamic} == {entry.name for entry in obeyed if not entry.read_only}
    assert {row[0]: (row[2], row[3]) for row in idle} == {
        key.name: ("yes" if key.is_dynamic else "no", key.why) for key in IDLE_KEYS.values()
    }


def test_settings_are_told_with_their_defaults() -> None:
    told = {name: default for name, default, _ in table("configuration.md", "Settings")}
    expected = {}
    for field in msgspec.structs.fields(Settings):
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory
        if field.name in TABLES:
            expected[field.name] = "table"
        elif default is None:
            expected[field.name] = "(none)"
        else:
            expected[field.name] = str(default).lower() if isinstance(default, bool) else str(default)
    assert told == expected


def test_settings_of_listeners_are_told() -> None:
    told = {name: default for name, default, _ in table("configuration.md", "Listeners")}
    assert told == {field.name: "(none)" for field in msgspec.structs.fields(ListenerSettings) if field.default is None}
    assert set(told) == set(LISTENER_NAMES)


def test_quorum_settings_are_told_with_their_defaults() -> None:
    told = {name: int(default.replace(",", "")) for name, default, _ in table("configuration.md", "The quorum")}
    assert told == {name: getattr(QuorumSettings(), name) for name in QUORUM_NAMES}


def test_group_settings_are_told_with_their_defaults() -> None:
    told = {name: int(default.replace(",", "")) for name, default, _ in table("configuration.md", "Groups")}
    assert told == {name: getattr(GroupSettings(), name) for name in GROUP_NAMES}


def test_transaction_settings_are_told_with_their_defaults() -> None:
    told = {name: int(default.replace(",", "")) for name, default, _ in table("configuration.md", "Transactions")}
    assert told == {name: getattr(TransactionSettings(), name) for name in TRANSACTION_NAMES}


def test_share_settings_are_told_with_their_defaults() -> None:
    told = {name: int(default.replace(",", "")) for name, default, _ in table("configuration.md", "Share coordinators")}
    assert told == {name: getattr(ShareCoordinatorSettings(), name) for name in SHARE_NAMES}


def test_settings_of_single_groups_are_told() -> None:
    told = {name for name, *_ in table("configuration.md", "Settings of single groups")}
    assert told == set(GROUP_KEYS)


def test_limits_are_told_with_their_defaults() -> None:
    told = {name: int(default.replace(",", "")) for name, default, _ in table("configuration.md", "Limits")}
    assert told == msgspec.structs.asdict(DEFAULT_LIMITS)


def test_every_flag_of_serve_is_told() -> None:
    text = (REFERENCE / "configuration.md").read_text()
    flags = [name for action in build_parser("serve")._actions for name in action.option_strings]
    assert [flag for flag in flags if flag.startswith("--") and f"`{flag}" not in text and flag != "--help"] == []


def test_every_command_is_told() -> None:
    text = (REFERENCE / "cli.md").read_text()
    assert [name for name in COMMANDS if f"\n## skidway {name}" not in text] == []


def test_every_package_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    told = {match[1] for line in text.splitlines() if (match := MODULE_LINE.match(line))}
    there = {path.parent.name for path in (ROOT / "src" / "skidway").glob("*/__init__.py")}
    assert told == there


def test_every_module_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    modules = [
        path
        for path in (ROOT / "src" / "skidway").rglob("*.py")
        if not path.name.startswith("__") and path.parent.name not in ("schema", "handlers")
    ]
    missing = [named(path) for path in modules if not re.search(rf"\b{re.escape(path.name)}", text)]
    assert missing == []


def test_the_number_of_planted_bugs_is_right() -> None:
    planted = (ROOT / "tests" / "sim" / "mutants" / "planted_bugs.py").read_text()
    (hunts,) = [
        node.value
        for node in ast.parse(planted).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and ast.unparse(node).startswith("HUNTS")
    ]
    assert isinstance(hunts, ast.Dict | ast.List | ast.Tuple)
    number = len(hunts.keys if isinstance(hunts, ast.Dict) else hunts.elts)
    assert f"[{number} planted bugs]" in (ROOT / "README.md").read_text()
    assert f"\n{number} mistakes are found." in (ROOT / "docs" / "internals" / "simulator.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_relative_links_lead_somewhere(document: Path) -> None:
    broken = []
    for text, image in LINK.findall(CODE_BLOCK.sub("", document.read_text())):
        target = text or image
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_python_blocks_compile(document: Path) -> None:
    for language, code in CODE_BLOCK.findall(document.read_text()):
        if language == "python":
            ast.parse(code, named(document))
