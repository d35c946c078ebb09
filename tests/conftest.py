"""What tests of several folders share."""

import pytest

JOIN_GROUP = 11


@pytest.fixture(scope="session")
def group_bootstrap(request: pytest.FixtureRequest) -> str:
    """The folder's `bootstrap`, if it names a broker that has consumer groups."""
    from skidway.client.cluster import Cluster

    bootstrap: str = request.getfixturevalue("bootstrap")
    with Cluster(bootstrap) as cluster:
        if JOIN_GROUP not in cluster.any_broker().served:
            pytest.skip("the broker has no consumer groups (JoinGroup is not served)")
    return bootstrap
