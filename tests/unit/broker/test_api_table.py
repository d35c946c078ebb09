"""The API table: what each row says is what Kafka documents, and everything else derives from the rows."""

import pytest
from broker_world import World

from skidway.broker.api.rights import Operation, Resource, Right
from skidway.broker.api.router import Routes
from skidway.broker.api.table import SERVED, Audience, Where
from skidway.wire.registry import APIS

# Kafka's table "Operations and Resources on Protocols", for the APIs that are served here.
DOCUMENTED = """
    0 Write TransactionalId | IdempotentWrite Cluster | Write Topic
    1 ClusterAction Cluster | Read Topic
    2 Describe Topic
    3 Describe Topic | Create Cluster | Create Topic
    8 Read Group | Read Topic
    9 Describe Group | Describe Topic
    10 Describe Group | Describe TransactionalId
    11 Read Group
    12 Read Group
    13 Read Group
    14 Read Group
    15 Describe Group
    16 Describe Cluster | Describe Group
    18
    19 Create Cluster | Create Topic
    20 Delete Topic
    21 Delete Topic
    22 Write TransactionalId | IdempotentWrite Cluster
    23 ClusterAction Cluster | Describe Topic
    24 Write TransactionalId | Write Topic
    25 Write TransactionalId | Read Group
    26 Write TransactionalId
    27 Alter Cluster | ClusterAction Cluster
    28 Write TransactionalId | Read Group | Read Topic
    29 Describe Cluster
    30 Alter Cluster
    31 Alter Cluster
    32 DescribeConfigs Cluster | DescribeConfigs Topic
    33 AlterConfigs Cluster | AlterConfigs Topic
    34 Alter Cluster
    35 Describe Cluster
    37 Alter Topic
    42 Delete Group
    43 ClusterAction Cluster
    44 AlterConfigs Cluster | AlterConfigs Topic
    45 Alter Cluster
    46 Describe Cluster
    47 Delete Group | Read Topic
    52 ClusterAction Cluster
    53 ClusterAction Cluster
    54 ClusterAction Cluster
    55 Describe Cluster
    56 ClusterAction Cluster
    57 Alter Cluster
    58 ClusterAction Cluster
    59 ClusterAction Cluster
    60 Describe Cluster
    61 Read Topic
    62 ClusterAction Cluster
    63 ClusterAction Cluster
    64 Alter Cluster
    65 Describe TransactionalId
    66 Describe TransactionalId
    67 ClusterAction Cluster
    68 Read Group
    69 Describe Group
    73 ClusterAction Cluster
    74 DescribeConfigs Cluster
    75 Describe Topic
    76 Read Group
    77 Describe Group
    78 Read Group | Read Topic
    79 Read Group | Read Topic
    83 ClusterAction Cluster
    84 ClusterAction Cluster
    85 ClusterAction Cluster
    86 ClusterAction Cluster
    87 ClusterAction Cluster
    90 Describe Group | Describe Topic
    91 Read Group | Read Topic
    92 Delete Group | Read Topic
"""
# What a Kafka 4 broker does not check although its documentation says so, and what it checks besides.
NOT_CHECKED = """
    0 IdempotentWrite Cluster
    43 ClusterAction Cluster
"""
CHECKED_BESIDES = """
    10 ClusterAction Cluster
    19 DescribeConfigs Topic
    20 Delete Cluster | Describe Topic
    22 Write Topic
    24 ClusterAction Cluster
    32 DescribeConfigs Group
    33 AlterConfigs Group
    43 Alter Cluster
    44 AlterConfigs Group
    65 Describe Topic
    68 Describe Topic
    69 Describe Topic
    76 Describe Topic
    77 Describe Topic
    80 Alter Cluster
    81 Alter Cluster
    30000 Write TransactionalId
    30001 Read Topic | ClusterAction Cluster
    30002 Read Topic | ClusterAction Cluster
    30003 Describe Topic | ClusterAction Cluster
    30004 Write Topic | ClusterAction Cluster
    30005 Write Topic | Describe Topic | ClusterAction Cluster
    30010 Describe Group | Describe Topic
"""


def plain(name: str) -> str:
    return name.replace("_", "").lower()


OPERATIONS = {plain(operation.name): operation for operation in Operation}
RESOURCES = {plain(resource.name): resource for resource in Resource}


def rights(text: str) -> dict[int, set[Right]]:
    found = {}
    for line in text.split("\n"):
        if line.strip():
            key, _, rows = line.strip().partition(" ")
            words = [row.split() for row in rows.split("|") if row.strip()]
            found[int(key)] = {Right(OPERATIONS[what.lower()], RESOURCES[of.lower()]) for what, of in words}
    return found


@pytest.mark.parametrize("key", SERVED)
def test_an_api_needs_what_kafka_documents(key: int) -> None:
    none: set[Right] = set()
    documented, not_checked, besides = rights(DOCUMENTED), rights(NOT_CHECKED), rights(CHECKED_BESIDES)
    assert key in documented or key in besides, "write down what this API needs in Kafka"
    expected = documented.get(key, none) - not_checked.get(key, none) | besides.get(key, none)
    assert set(SERVED[key].needs) == expected
    assert len(SERVED[key].needs) == len(expected)


def test_only_api_versions_needs_no_right() -> None:
    assert [key for key, row in SERVED.items() if not row.needs] == [18]


@pytest.mark.parametrize("key", SERVED)
def test_the_handler_of_a_row_is_that_of_its_key(key: int) -> None:
    module = SERVED[key].handle.__module__.rpartition(".")[2]
    assert plain(module) == APIS[key].lower()


def test_an_api_is_for_nodes_if_it_needs_nothing_but_cluster_action() -> None:
    """All of these are served early, none is forwarded, and none is advertised."""
    of_nodes = {key for key, row in SERVED.items() if row.audience is Audience.NODES}
    cluster_action = (Right(Operation.CLUSTER_ACTION, Resource.CLUSTER),)
    assert of_nodes == {key for key, row in SERVED.items() if row.needs == cluster_action}
    assert all(SERVED[key].early and SERVED[key].where is Where.HERE for key in of_nodes)
    assert not of_nodes & set(Routes(1, SERVED).advertised)


def test_routes_know_what_the_table_says() -> None:
    routes = Routes(1, SERVED)
    for key, row in SERVED.items():
        route = routes.newest(key)
        assert (route.early, route.forwarded) == (row.early, row.where is Where.CONTROLLER)
        for_all = row.where is Where.HERE and row.audience is Audience.CLIENTS and not row.of_shares
        assert (route.handle is row.handle) == for_all


@pytest.mark.parametrize("key", sorted(SERVED.keys() - {18}))
def test_a_version_that_is_not_in_the_table_has_no_route(key: int) -> None:
    """ApiVersions alone answers any version."""
    first, last = SERVED[key].versions
    for version in (first - 1, last + 1):
        with pytest.raises(KeyError):
            Routes(1, SERVED)[key, version]


def test_clients_hear_of_every_version_that_is_served_to_them_and_of_no_other() -> None:
    world = World()
    peer = world.peer()
    ours = peer.call("ApiVersions", version=3, client_software_name="skidway", client_software_version="1.0")
    advertised = {entry.api_key: entry for entry in ours.api_keys}
    assert list(advertised) == sorted(key for key, row in SERVED.items() if row.audience is Audience.CLIENTS)
    theirs = peer.call("ApiVersions", version=3, client_software_name="kafka-python", client_software_version="1.0")
    ours_alone = advertised.keys() - {entry.api_key for entry in theirs.api_keys}
    assert ours_alone == {30_000, 30_001, 30_002, 30_003, 30_004, 30_005, 30_010}, "not Kafka's"
    for key, entry in advertised.items():
        first = 0 if key == 0 else SERVED[key].versions[0]  # KAFKA-18659
        assert (entry.min_version, entry.max_version) == (first, SERVED[key].versions[1])
