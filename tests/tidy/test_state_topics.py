"""The topic of groups is a matter of their coordinators: whoever else names it treats one kind of coordinator apart."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "skidway"
TOPIC = "__consumer_offsets"
CONSTANT = "OFFSETS_TOPIC"
NAMED_IN = {
    "broker/coordinators/groups.py": "the kind: the constant is defined here",
    "metadata/topic_names.py": "the names that users may not give to a topic",
    "client/replay.py": "a client for any broker, which knows nothing of this one's modules",
    "sim/faults/nemesis.py": "which topic the faults of each kind of coordinator are about",
    "sim/laws/groups.py": "a law of groups",
    "sim/laws/transaction_logs.py": "a law of transactions, which offsets are a part of",
}
"""This list may only shrink."""


def names_it(tree: ast.Module) -> bool:
    """Documentation may."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if TOPIC in text and id(node) not in documentation:
                return True
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name == CONSTANT:
                return True
    return False


def test_only_coordinators_of_groups_name_the_topic_of_groups() -> None:
    found = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if names_it(ast.parse(path.read_text()))
    }
    assert found == set(NAMED_IN)


def test_a_name_is_found_in_code_and_not_in_documentation() -> None:
    assert names_it(ast.parse(f'topics = ("{TOPIC}", "t")'))
    assert names_it(ast.parse(f'print(f"{TOPIC}-{{index}}")'))
    assert names_it(ast.parse(f"from groups import {CONSTANT} as topic"))
    assert names_it(ast.parse(f"node.{CONSTANT}"))
    assert not names_it(ast.parse(f'"""Of {TOPIC}."""\nlimit = 1\n"""In {TOPIC}."""'))
