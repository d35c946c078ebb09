"""One cluster of three for all tests of this folder, as long as each leaves it whole."""

import secrets
from collections.abc import Iterator

import pytest

from skidway.testing import Cluster

NODES = 3
_shared: list[Cluster] = []


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Never two clusters at once: they would take the cores from each other."""
    for item in items:
        if "tests/cluster" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("cluster"))


@pytest.fixture(scope="session", autouse=True)
def _close_shared() -> Iterator[None]:
    yield
    while _shared:
        _shared.pop().close()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes, all up and all connected; the next test gets another cluster if this one fails."""
    if not _shared:
        _shared.append(Cluster(NODES).start())
    (running,) = _shared
    failed_before = request.session.testsfailed
    yield running
    if request.session.testsfailed > failed_before or not whole(running):
        _shared.remove(running)
        running.close()


@pytest.fixture
def topic() -> str:
    return f"story-{secrets.token_hex(4)}"


def whole(cluster: Cluster) -> bool:
    return cluster.running == list(cluster.brokers)
