"""What keeps modules and classes apart: import cycles, sizes of classes and packages; all of it may only shrink.

An import for types alone counts like any other: who reads a module has to read what it names.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
CYCLES = {
    "skidway.cli.help.completion": 3,
    "skidway.cli.help.help_pages": 3,
    "skidway.server.clients": 3,
}
"""Modules that import each other: the first of them by name, and how many they are."""
CLASS_LINES_MAX = 300
LONG_CLASSES = {
    "skidway.broker.cluster.quorum_host.QuorumHost": 332,
    "skidway.broker.partitions.partition.Partition": 393,
    "skidway.log.log.Log": 356,
    "skidway.quorum.log.MetadataLog": 306,
    "skidway.replica.fetcher.Fetcher": 332,
    "skidway.server.tcp.Client": 360,
    "skidway.sim.world.host.Host": 347,
    "skidway.spark.sink.producing.BatchProducer": 326,
}
ATTRIBUTES_MAX = 20
WIDE_CLASSES = {
    "skidway.broker.partitions.partition.Partition": 24,
    "skidway.broker.services.Services": 24,
    "skidway.limits.Limits": 35,
    "skidway.log.log.Log": 22,
    "skidway.metadata.topic_configs.TopicConfig": 27,
    "skidway.server.clients.Clients": 25,
    "skidway.server.config.Settings": 27,
    "skidway.sim.plan.Plan": 21,
    "skidway.sim.world.host.Host": 35,
    "skidway.spark.source.options.SourceOptions": 22,
}
SIBLINGS_MAX = 24
MANY_SIBLINGS = {
    "skidway.cli": 32,
    "skidway.server": 32,
}
ONE_FOR_EACH_API = ("skidway.broker.handlers", "skidway.wire.schema")


@cache
def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text())
    return found


def imports(name: str, tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of ours that a module names, wherever in it."""
    found = set()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module is not None:
            assert statement.level == 0, f"{name}: a relative import"
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                found.add(inner if inner in known else statement.module)
    return (found & known) - {name}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_ones: list[str] = []
    found: list[list[str]] = []
    for root in sorted(graph):
        if root in order:
            continue
        stack: list[tuple[str, Iterator[str]]] = []

        def enter(module: str, stack: list[tuple[str, Iterator[str]]] = stack) -> None:
            order[module] = low[module] = len(order)
            open_ones.append(module)
            stack.append((module, iter(sorted(graph[module]))))

        enter(root)
        while stack:
            module, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                if stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[module])
                if low[module] == order[module]:
                    start = open_ones.index(module)
                    component = sorted(open_ones[start:])
                    del open_ones[start:]
                    if len(component) > 1:
                        found.append(component)
            elif following not in order:
                enter(following)
            elif following in open_ones:
                low[module] = min(low[module], order[following])
    return found


def test_a_cycle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"d", "a"}, "f": {"a"}}
    assert cycles(graph) == [["a", "b", "c", "d", "e"]]
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"c"}}) == [["b", "c"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_cycles_of_imports_only_shrink() -> None:
    trees = modules()
    known = set(trees)
    found = cycles({name: imports(name, tree, known) for name, tree in trees.items()})
    sizes = {component[0]: len(component) for component in found}
    assert sizes == CYCLES, f"untie it, or write down that a cycle is smaller or gone: {found}"


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for name, tree in modules().items():
        for statement in ast.walk(tree):
            if isinstance(statement, ast.ClassDef):
                yield f"{name}.{statement.name}", statement


def lines(definition: ast.ClassDef) -> int:
    assert definition.end_lineno is not None
    return definition.end_lineno - definition.lineno + 1


def attributes(definition: ast.ClassDef) -> set[str]:
    """What an instance holds: the fields of its class, and what its methods assign to `self`."""
    fields = {
        statement.target.id
        for statement in definition.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    assigned = {
        node.attr
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return fields | assigned


def test_classes_stay_short() -> None:
    found = {name: lines(definition) for name, definition in classes() if lines(definition) > CLASS_LINES_MAX}
    assert_shrinks(found, LONG_CLASSES)


def test_classes_hold_few_things() -> None:
    """Except for the messages of the protocol, which have the fields that they have."""
    found = {
        name: len(attributes(definition))
        for name, definition in classes()
        if len(attributes(definition)) > ATTRIBUTES_MAX and ".wire.schema." not in name
    }
    assert_shrinks(found, WIDE_CLASSES)


def test_packages_have_rooms() -> None:
    """Modules beside each other, without `__init__`; packages inside count as nothing."""
    siblings = Counter(name.rpartition(".")[0] for name in modules() if not is_package(name))
    for package in ONE_FOR_EACH_API:
        del siblings[package]
    assert_shrinks({name: count for name, count in siblings.items() if count > SIBLINGS_MAX}, MANY_SIBLINGS)


def is_package(name: str) -> bool:
    return (SOURCE / name.replace(".", "/") / "__init__.py").exists()


def assert_shrinks(found: dict[str, int], allowed: dict[str, int]) -> None:
    grown = {name: size for name, size in found.items() if size > allowed.get(name, 0)}
    assert grown == {}, "split it by its nouns"
    assert set(allowed) <= set(found), f"small enough now, take it off the list: {set(allowed) - set(found)}"
