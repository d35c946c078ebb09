"""For all tests: this directory's modules can be imported, and no test fails because the machine is slow."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("settled", settings.get_profile("patient"), derandomize=True)
settings.load_profile("settled")

JOIN_GROUP = 11

CHAOS_TIMEOUT_S = 3600


def pytest_configure(config: pytest.Config) -> None:
    """Generated examples are the same in every `make test`; `make chaos` draws others each time."""
    if config.option.markexpr == "chaos":
        settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long tests may take as long as a slow machine needs; the default bound is for those of `make test`."""
    for item in items:
        if item.get_closest_marker("chaos") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CHAOS_TIMEOUT_S))


@pytest.fixture(scope="session")
def group_bootstrap(request: pytest.FixtureRequest) -> str:
    """The folder's `bootstrap`, if it names a broker that has consumer groups."""
    from skidway.client.cluster import Cluster

    bootstrap: str = request.getfixturevalue("bootstrap")
    with Cluster(bootstrap) as cluster:
        if JOIN_GROUP not in cluster.any_broker().served:
            pytest.skip("the broker has no consumer groups (JoinGroup is not served)")
    return bootstrap
