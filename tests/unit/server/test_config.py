"""Settings: who wins, and sentences that tell an operator what to change where."""

from pathlib import Path

import pytest

from skidway.broker.listeners import Address
from skidway.limits import DEFAULT_LIMITS
from skidway.quorum.settings import QuorumSettings
from skidway.server.addresses import parse_address, parse_nodes
from skidway.server.config import ConfigError, Settings, load_settings
from skidway.server.flags import build_parser, settings_from
from skidway.server.service_links import service_links


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "skidway.toml"
    path.write_text(text)
    return str(path)


def test_nothing_set_gives_the_defaults() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert (settings.node_id, settings.listen, settings.flush) == (1, "127.0.0.1:9092", "sync")
    assert settings.limits == DEFAULT_LIMITS


def test_the_send_buffer_is_a_size_or_left_to_the_kernel() -> None:
    assert load_settings(environment={"SKIDWAY_SEND_BUFFER_BYTES": "-1"}).send_buffer_bytes == -1
    assert load_settings(assignments={"send_buffer_bytes": "262144"}).send_buffer_bytes == 262144
    for wrong in ("0", "-2", "1000"):
        with pytest.raises(ConfigError, match=r"send_buffer_bytes in flag.*the kernel's choice.* or at least 4096"):
            load_settings(assignments={"send_buffer_bytes": wrong})


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'node_id = 1\ndefault_partitions = 10\nlisten = "127.0.0.1:1"\nflush = "os"\n')
    environment = {"SKIDWAY_NODE_ID": "2", "SKIDWAY_DEFAULT_PARTITIONS": "20", "PATH": "/bin"}
    settings = load_settings(file, environment, {"node_id": "3", "listen": None})
    assert (settings.node_id, settings.default_partitions, settings.listen, settings.flush) == (
        3,
        20,
        "127.0.0.1:1",
        "os",
    )


def test_variables_of_the_command_line_are_not_settings() -> None:
    """Whoever chose a profile for other commands can still start a broker."""
    names = ["SKIDWAY_CONFIG", "SKIDWAY_BOOTSTRAP", "SKIDWAY_PROFILE", "SKIDWAY_PROFILES", "SKIDWAY_MASK_SALT"]
    names += ["SKIDWAY_REGISTRY_USER", "SKIDWAY_REGISTRY_PASSWORD", "SKIDWAY_REGISTRY_TOKEN"]
    assert load_settings(None, dict.fromkeys(names, "anything")) == load_settings(None, {})


def test_tables(tmp_path: Path) -> None:
    text = (
        '[limits]\nconnections_max = 50\n[topic_defaults]\n"retention.ms" = 5\nsegment.bytes = 2000000\n'
        "preallocate = false"
    )
    environment = {"SKIDWAY_LIMITS__CONNECTION_IDLE_MS": "99", "SKIDWAY_TOPIC_DEFAULTS__MAX_MESSAGE_BYTES": "11"}
    settings = load_settings(written(tmp_path, text), environment)
    assert settings.limits.connections_max == 50
    assert settings.limits.connections_per_ip_max == 50, "follows the bound it must not exceed"
    assert settings.limits.connection_idle_ms == 99
    assert settings.topic_defaults == {
        "retention.ms": "5",
        "segment.bytes": "2000000",
        "preallocate": "false",
        "max.message.bytes": "11",
    }


def test_a_setting_of_an_earlier_version_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "skidway.toml"
    file.write_text("experimental_transactions = true")
    advice = "there is no such setting any more: every broker serves transactions now; remove the setting"
    with pytest.raises(ConfigError, match=f"{file}, key experimental_transactions: {advice}"):
        load_settings(str(file))
    with pytest.raises(ConfigError, match=f"SKIDWAY_EXPERIMENTAL_TRANSACTIONS: {advice}"):
        load_settings(None, {"SKIDWAY_EXPERIMENTAL_TRANSACTIONS": "false"})
    with pytest.raises(ConfigError, match=advice):
        load_settings(assignments={"experimental_transactions": "true"})


def test_share_coordinators_have_a_table(tmp_path: Path) -> None:
    text = "[shares]\nstate_partitions = 3\nupdates_per_snapshot = 0\n"
    shares = load_settings(written(tmp_path, text), {"SKIDWAY_SHARES__WRITE_TIMEOUT_MS": "900"}).shares
    assert (shares.state_partitions, shares.updates_per_snapshot, shares.write_timeout_ms) == (3, 0, 900)
    assert shares.state_in_sync_min == 2
    for assignment, sentence in (
        ("updates_per_snapshot=501", "shares.updates_per_snapshot in flag --set .*: expected 0 to 500, got 501"),
        ("state_partitions=0", "shares.state_partitions in .*: expected a positive number, got 0"),
        ("state_partition=1", "unknown setting shares.state_partition in .*; did you mean shares.state_partitions?"),
    ):
        name, _, value = assignment.partition("=")
        with pytest.raises(ConfigError, match=sentence):
            load_settings(assignments={f"shares.{name}": value})


def test_flags_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_FLUSH", "os")
    words = "--node-id 7 --no-auto-create-topics --set limits.connections_max=9 --set topic_defaults.retention.ms=1"
    settings = settings_from(build_parser("skidway serve").parse_args(words.split()))
    assert (settings.node_id, settings.auto_create_topics, settings.flush) == (7, False, "os")
    assert settings.limits.connections_max == 9
    assert settings.topic_defaults == {"retention.ms": "1"}
    with pytest.raises(ConfigError, match=r"flag --set limits: expected NAME=VALUE"):
        settings_from(build_parser("skidway serve").parse_args(["--set", "limits"]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("node_idd = 3", "unknown setting node_idd in {file}, key node_idd; did you mean node_id?"),
        ("node_id = 'x'", "node_id in {file}, key node_id: expected a whole number, got 'x'"),
        ("node_id = 1.5", "node_id in {file}, key node_id: expected a whole number, got 1.5"),
        ("flush = 'no'", "flush in {file}, key flush: expected one of 'sync', 'os', got 'no'"),
        (
            "auto_create_topics = 3",
            "auto_create_topics in {file}, key auto_create_topics: expected true or false, got 3",
        ),
        (
            "[limits]\nconnection_max = 3",
            "unknown setting limits.connection_max in {file}, key limits.connection_max;"
            " did you mean limits.connections_max?",
        ),
        (
            "[limits]\nconnections_max = 0",
            "limits.connections_max must be positive (set in {file}, key limits.connections_max)",
        ),
        ("limits = 3", "limits in {file}, key limits: expected a table of settings, got 3"),
        ("[topic_defaults]\nx = [1]", "topic_defaults.x in {file}, key topic_defaults.x: expected text,"),
        ("sync_threads = 0", "sync_threads in {file}, key sync_threads: expected a positive number, got 0"),
        ("scrub_bytes_per_second = 0", "key scrub_bytes_per_second: expected a positive number, got 0"),
        ("scrub_interval_ms = -1", "scrub_interval_ms in {file}, key scrub_interval_ms: expected 0 or more, got -1"),
        ("node_id = -1", "node_id in {file}, key node_id: expected 0 or more, got -1"),
        ("node_id = 9999999999", "node_id in {file}, key node_id: expected at most 2147483647"),
        ("listen = 'here'", "listen in {file}, key listen: 'here' is not an address: expected HOST:PORT"),
        ("listen = '::1:9092'", "write an IPv6 address in brackets, such as [::1]:9092"),
        (
            "advertise = 'a:99999'",
            "advertise in {file}, key advertise: 'a:99999': the port must be a number from 0 to 65535",
        ),
        ("voters = '1@a:1,1@b:2'", "voters in {file}, key voters: node 1 is named twice: at a:1 and at b:2"),
        (
            "voters = '1@a:1,2@a:1'",
            "voters in {file}, key voters: two nodes have the address a:1: every node needs its",
        ),
        ("voters = 'a:1'", "voters in {file}, key voters: 'a:1': expected NUMBER@HOST:PORT, such as 1@broker-1"),
        ("voters = 'x@a:1'", "'x@a:1': expected NUMBER@HOST:PORT"),
        ("voters = '1@a'", "voters in {file}, key voters: 'a' is not an address: expected HOST:PORT"),
        ("voters = '1@a:0'", "'1@a:0': expected a host and a port that the other nodes can connect to"),
        ("voters = '1@:9092'", "'1@:9092': expected a host and a port that the other nodes can connect to"),
        ("voters = '99999999999@a:1'", "'99999999999@a:1': the number of a node must be at most 2147483647"),
        ("peer_addresses = '1'", "peer_addresses in {file}, key peer_addresses: '1': expected NUMBER@HOST:PORT"),
        ("roles = 'king'", "roles in {file}, key roles: expected broker, controller or broker,controller, got 'king'"),
        ("roles = ''", "roles in {file}, key roles: expected broker, controller or broker,controller, got ''"),
        (
            "roles = 'broker'",
            "roles in {file}, key roles: a node without the role controller needs voters, to find the controller",
        ),
        (
            "roles = 'broker'\nvoters = '1@a:1'",
            "voters in {file}, key voters: names this node (1), whose roles are not controller",
        ),
        (
            "heartbeat_ms = 900",
            "heartbeat_ms is 900: at most a quarter of session_timeout_ms (1200) is expected (set in",
        ),
        ("heartbeat_ms = 0", "heartbeat_ms in {file}, key heartbeat_ms: expected a positive number, got 0"),
        (
            "[quorum]\nretry = 3",
            "unknown setting quorum.retry in {file}, key quorum.retry; did you mean quorum.retry_ms?",
        ),
        ("[quorum]\nretry_ms = 0", "quorum.retry_ms in {file}, key quorum.retry_ms: expected a positive number, got 0"),
        ("data_dir = ''", "data_dir in {file}, key data_dir: expected a directory, got an empty value"),
        ("node_id = \n", "{file} is not valid TOML: Invalid value (at line 1, column 11)"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, sentence: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert sentence.format(file=file) in str(caught.value)


def test_mistakes_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration file .*nope: No such file"):
        load_settings(str(tmp_path / "nope"))
    with pytest.raises(ConfigError, match="environment variable SKIDWAY_NODE_ID: expected a whole number, got 'one'"):
        load_settings(environment={"SKIDWAY_NODE_ID": "one"})
    with pytest.raises(ConfigError, match=r"in environment variable SKIDWAY_NODEID; did you mean node_id\?"):
        load_settings(environment={"SKIDWAY_NODEID": "1"})
    with pytest.raises(ConfigError, match="flag --default-partitions: expected a whole number, got 'many'"):
        load_settings(flags={"default_partitions": "many"})
    with pytest.raises(ConfigError, match="known settings are data_dir, require_data, node_id"):
        load_settings(flags={"zzzzzz": "1"})


def test_keys_of_sqs_are_pairs_and_are_not_shown() -> None:
    settings = load_settings(environment={"SKIDWAY_SQS_KEYS": "a:b/c+d=, 123456789012:e"})
    assert settings.sqs_secrets() == {"a": "b/c+d=", "123456789012": "e"}
    assert load_settings().sqs_secrets() == {}
    with pytest.raises(ConfigError, match=r"sqs_keys in environment variable SKIDWAY_SQS_KEYS: .* pair 2") as caught:
        load_settings(environment={"SKIDWAY_SQS_KEYS": "a:b,hidden"})
    assert "hidden" not in str(caught.value)


KUBERNETES = {
    "SKIDWAY_PORT": "tcp://10.0.0.1:9092",
    "SKIDWAY_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    "SKIDWAY_PORT_9092_TCP_ADDR": "10.0.0.1",
    "SKIDWAY_PORT_9092_TCP_PORT": "9092",
    "SKIDWAY_PORT_9092_TCP_PROTO": "tcp",
    "SKIDWAY_SERVICE_HOST": "10.0.0.1",
    "SKIDWAY_SERVICE_PORT": "9092",
    "SKIDWAY_SERVICE_PORT_KAFKA": "9092",
    "SKIDWAY_HEADLESS_SERVICE_HOST": "fd00::1",
    "SKIDWAY_0_PORT": "udp://[fd00::1]:9092",
    "SKIDWAY_NAME": "/web/skidway",
}
"""What Kubernetes and Docker set for services named skidway, skidway-headless and skidway-0."""


def test_what_kubernetes_says_about_a_service_of_the_same_name_is_no_setting() -> None:
    assert load_settings(environment={**KUBERNETES, "SKIDWAY_NODE_ID": "7"}).node_id == 7
    assert service_links({**KUBERNETES, "SKIDWAY_NODE_ID": "7", "PATH": "/bin"}) == sorted(KUBERNETES)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SKIDWAY_PORT", "9092"),
        ("SKIDWAY_PORT_9092_TCP", "9092"),
        ("SKIDWAY_SERVICE_PORT", "kafka"),
        ("SKIDWAY_SERVICE_HOSTS", "10.0.0.1"),
        ("SKIDWAY_NAME", "mine"),
        ("SKIDWAY_LISTEN_PORT", "9092"),
    ],
)
def test_a_mistake_that_resembles_it_is_still_one(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting .* in environment variable {variable}"):
        load_settings(environment={variable: value})


@pytest.mark.parametrize("address", ["0.0.0.0:9092", "[::]:9092", ":9092"])
def test_nobody_can_connect_to_all_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="advertise in flag --advertise: expected a host that clients can connect to"):
        load_settings(flags={"advertise": address})


def test_addresses() -> None:
    assert parse_address("127.0.0.1:9092") == Address("127.0.0.1", 9092)
    assert parse_address("[::1]:0") == Address("::1", 0)
    assert parse_address(":9092") == Address("0.0.0.0", 9092)
    assert str(Address("::1", 5)) == "[::1]:5"
    assert str(Address("broker.example", 5)) == "broker.example:5"


def test_a_node_of_a_cluster() -> None:
    words = "--node-id 2 --voters 1@a.example:9092,2@[::1]:9093 --roles controller --rack r1 --set quorum.retry_ms=7"
    settings = settings_from(build_parser("skidway serve").parse_args(words.split()))
    assert settings.voter_list() == [(1, "a.example", 9092), (2, "::1", 9093)]
    assert settings.role_set() == {"controller"}
    assert settings.rack == "r1"
    assert settings.quorum == QuorumSettings(retry_ms=7)
    broker = load_settings(flags={"roles": "broker", "voters": "7@a:1", "node_id": "1"})
    assert broker.role_set() == {"broker"}
    assert parse_nodes(" 3@a:1 , 4@b:1,") == {3: Address("a", 1), 4: Address("b", 1)}
    assert parse_nodes("") == {}


def advertised(port: int, **settings: str) -> Address:
    """What a broker with one listener tells clients once it has its port."""
    (spec,) = load_settings(flags=settings).listener_list().kafka.bound_to([port])
    return spec.advertised


def test_what_clients_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    assert advertised(4711, listen="127.0.0.1:0") == Address("127.0.0.1", 4711)
    assert advertised(9092, listen="0.0.0.0:9092") == Address("here", 9092)
    assert advertised(9092, listen="[::]:9092") == Address("here", 9092)
    assert advertised(7, advertise="example.org:0") == Address("example.org", 7)
    assert advertised(7, advertise="example.org:80") == Address("example.org", 80)


def test_a_wrong_topic_default_is_told_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting topic_defaults\.retentio\.ms.*did you mean.*retention\.ms"):
        load_settings(assignments={"topic_defaults.retentio.ms": "5"})
    with pytest.raises(ConfigError, match=r"topic_defaults\.flush in .*must be one of sync, os"):
        load_settings(environment={"SKIDWAY_TOPIC_DEFAULTS__FLUSH": "never"})


def test_bounds_of_group_settings_follow_what_they_must_not_exclude() -> None:
    groups = load_settings(assignments={"groups.consumer_session_timeout_ms": "3000"}).groups
    assert (groups.consumer_session_timeout_ms_min, groups.consumer_session_timeout_ms_max) == (3_000, 60_000)
    wrong = {"groups.consumer_session_timeout_ms": "3000", "groups.consumer_session_timeout_ms_min": "5000"}
    with pytest.raises(ConfigError, match=r"consumer_session_timeout_ms is 3000, but must be between 5000 and 60000"):
        load_settings(assignments=wrong)
