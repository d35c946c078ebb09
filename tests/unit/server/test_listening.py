"""What operators write about listeners, and what is refused."""

import re
from typing import Any

import pytest

from skidway.broker.listeners import Address, ListenerSpec, Security
from skidway.server.carriage import CARRIAGES
from skidway.server.config import ConfigError, Settings, load_settings
from skidway.server.flags import build_parser, settings_from
from skidway.server.listening import AVAILABLE, ListenerSettings

INSIDE_AND_OUTSIDE = """
listen = ["INSIDE=10.0.0.5:9092", "OUTSIDE=0.0.0.0:9192"]
advertise = ["OUTSIDE=broker.example:9192"]
inter_broker_listener = "INSIDE"

[listeners.OUTSIDE]
connections_max = 500
send_buffer_bytes = -1
"""


def shown(settings: Settings) -> list[str]:
    listeners = settings.listener_list().kafka
    return [f"{spec.name} {spec.bind} {spec.advertised}{'*' * (spec == listeners.inter_broker)}" for spec in listeners]


def test_one_listener_needs_no_name() -> None:
    assert shown(Settings()) == ["PLAINTEXT 127.0.0.1:9092 127.0.0.1:9092*"]
    settings = load_settings(flags={"listen": ["0.0.0.0:9092"], "advertise": ["broker.example:9092"]})
    assert shown(settings) == ["PLAINTEXT 0.0.0.0:9092 broker.example:9092*"]
    settings = load_settings(flags={"listen": "inside=0.0.0.0:9092", "advertise": "broker.example:9092"})
    assert shown(settings) == ["INSIDE 0.0.0.0:9092 broker.example:9092*"]


def test_several_from_a_file(tmp_path: Any) -> None:
    file = tmp_path / "skidway.toml"
    file.write_text(INSIDE_AND_OUTSIDE)
    settings = load_settings(str(file))
    assert shown(settings) == ["INSIDE 10.0.0.5:9092 10.0.0.5:9092*", "OUTSIDE 0.0.0.0:9192 broker.example:9192"]
    assert settings.of_listener("OUTSIDE") == ListenerSettings(connections_max=500, send_buffer_bytes=-1)
    assert settings.of_listener("INSIDE") == ListenerSettings()
    assert settings.chose_address_of("OUTSIDE")
    assert not settings.chose_address_of("INSIDE")


def test_several_from_flags() -> None:
    words = "--listen INSIDE=127.0.0.1:0 --listen OUTSIDE=127.0.0.1:0 --advertise OUTSIDE=broker.example:9192"
    more = "--set inter_broker_listener=inside --set listeners.outside.connections_per_ip_max=7"
    settings = settings_from(build_parser("skidway").parse_args(f"{words} {more}".split()))
    assert shown(settings) == ["INSIDE 127.0.0.1:0 127.0.0.1:0*", "OUTSIDE 127.0.0.1:0 broker.example:9192"]
    assert settings.of_listener("OUTSIDE").connections_per_ip_max == 7


def test_several_from_the_environment() -> None:
    environment = {
        "SKIDWAY_LISTEN": "INSIDE=127.0.0.1:1, [::1]:2",
        "SKIDWAY_ADVERTISE": "inside=a.example:3,b.example:4",
        "SKIDWAY_LISTENERS__INSIDE__CONNECTIONS_MAX": "9",
        "SKIDWAY_LISTENERS__PLAINTEXT__SECURITY": "plaintext",
    }
    settings = load_settings(environment=environment)
    assert shown(settings) == ["INSIDE 127.0.0.1:1 a.example:3", "PLAINTEXT [::1]:2 b.example:4*"]
    assert settings.of_listener("INSIDE").connections_max == 9


def test_what_wins_replaces_the_whole_list(tmp_path: Any) -> None:
    file = tmp_path / "skidway.toml"
    file.write_text('listen = ["INSIDE=127.0.0.1:1", "OUTSIDE=127.0.0.1:2"]\ninter_broker_listener = "INSIDE"\n')
    assert shown(load_settings(str(file), flags={"listen": "INSIDE=127.0.0.1:3"})) == [
        "INSIDE 127.0.0.1:3 127.0.0.1:3*"
    ]


def http_of(**flags: Any) -> list[tuple[str, bool]]:
    specs = load_settings(flags=flags).listener_list()
    return [(str(spec.bind), spec.optional) for spec in specs if not spec.is_kafka]


def test_http_is_on_by_default_at_kafkas_port_alone() -> None:
    """Brokers of many tests, or of a cluster on one machine, would all want the one port."""
    assert http_of() == http_of(listen="0.0.0.0:9092") == [("127.0.0.1:8082", True)]
    assert http_of(listen="A=127.0.0.1:1,B=127.0.0.1:9092", inter_broker_listener="A") == [("127.0.0.1:8082", True)]
    assert http_of(listen="127.0.0.1:0") == http_of(listen="127.0.0.1:9093") == []
    assert http_of(http="off") == http_of(http="OFF") == []


def test_http_that_was_asked_for_has_to_be_there() -> None:
    assert http_of(listen="127.0.0.1:0", http="0.0.0.0:80") == [("0.0.0.0:80", False)]
    assert http_of(listen="127.0.0.1:0,HTTP=127.0.0.1:1") == [("127.0.0.1:1", False)]
    words = ["--listen", "127.0.0.1:0", "--no-http", "--http", "[::1]:5"]
    settings = settings_from(build_parser("skidway").parse_args(words))
    assert [str(spec.bind) for spec in settings.listener_list()] == ["127.0.0.1:0", "[::1]:5"]


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (
            {"http": "8082"},
            "http in flag --http: '8082' is not an address: expected HOST:PORT, such as 127.0.0.1:9092",
        ),
        ({"http": "127.0.0.1:9092"}, "would share the port 9092"),
        ({"listen": "HTTP=127.0.0.1:1"}, "expected a listener for Kafka's protocol, got none but for HTTP"),
        ({"inter_broker_listener": "HTTP"}, "there is no listener HTTP; listen has PLAINTEXT"),
    ],
)
def test_mistakes_about_http_are_told(flags: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(error)):
        load_settings(flags=flags)


def test_ports_are_known_when_they_are_bound() -> None:
    listeners = load_settings(flags={"listen": "127.0.0.1:0,B=127.0.0.1:0", "advertise": "B=b.example:5"})
    bound = listeners.listener_list().bound_to([11, 12])
    assert list(bound) == [
        ListenerSpec("PLAINTEXT", Address("127.0.0.1", 11), Address("127.0.0.1", 11)),
        ListenerSpec("B", Address("127.0.0.1", 12), Address("b.example", 5)),
    ]
    assert bound.inter_broker == bound.specs[0]
    assert bound.find("B") == bound.specs[1]
    assert bound.find("C") is bound.find(None) is None


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ({"listen": "A=h:1,B=h:2"}, "inter_broker_listener is not set: expected one of A and B: the listener by which"),
        (
            {"listen": "A=h:1,B=h:2", "inter_broker_listener": "C"},
            "inter_broker_listener in flag --inter-broker-listener: there is no listener C; listen has A and B",
        ),
        ({"listen": "A=h:1,h:1"}, "listen in flag --listen: A and PLAINTEXT would share the port 1: every listener"),
        ({"listen": "A=h:1,0.0.0.0:1"}, "listen in flag --listen: A and PLAINTEXT would share the port 1"),
        ({"listen": "A=h:1,a=h:2"}, "listen in flag --listen: the listener A is named twice: give each its own"),
        ({"listen": ["h:1", "h:2"]}, "listen in flag --listen: two addresses have no name: give each its own"),
        (
            {"listen": "h:1,PLAINTEXT=h:2"},
            "listen in flag --listen: the listener PLAINTEXT has two addresses: expected",
        ),
        ({"listen": "A B=h:2"}, "'A B=h:2': expected a name of letters, digits, _ and - before the ="),
        ({"listen": "ß=h:2"}, "'ß=h:2': expected a name of letters, digits, _ and - before the ="),
        ({"listen": "PLAINTEXT://h:2"}, "'PLAINTEXT://h:2': expected NAME=HOST:PORT, without ://"),
        ({"listen": "A=h"}, "listen in flag --listen: 'h' is not an address: expected HOST:PORT"),
        ({"listen": " , "}, "listen in flag --listen: expected HOST:PORT, got an empty value"),
        ({"listen": ["A=h:1", 2]}, "listen in flag --listen: expected text, got a list"),
        ({"listen": ",".join(f"A{n}=h:{n}" for n in range(1, 18))}, "expected at most 16 listeners, got 17"),
        ({"advertise": ""}, "advertise in flag --advertise: expected HOST:PORT, got an empty value"),
        ({"advertise": "B=h:1"}, "advertise in flag --advertise: there is no listener B; listen has PLAINTEXT"),
        (
            {"listen": "A=h:1,B=h:2", "advertise": "c:1", "inter_broker_listener": "A"},
            "advertise in flag --advertise: 'c:1': expected NAME=HOST:PORT, with a name of A and B",
        ),
        ({"advertise": "h:1,PLAINTEXT=h:2"}, "advertise in flag --advertise: the listener PLAINTEXT has two addresses"),
        ({"advertise": "0.0.0.0:1"}, "expected a host that clients can connect to, got '0.0.0.0:1', which means all"),
        (
            {"listen": "SSL=h:1"},
            "listen in flag --listen: the listener SSL needs SSL, which is not available yet, only PLAINTEXT",
        ),
    ],
)
def test_mistakes_are_told(flags: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(flags=flags)
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("listeners.PLAINTEXT.security", "SASL_SSL", "the listener PLAINTEXT needs SASL_SSL, which is not available"),
        ("listeners.PLAINTEXT.security", "tls", "expected PLAINTEXT or HTTP, got 'tls'"),
        ("listeners.PLAINTEXT.connections_max", "0", "expected a positive number, got 0"),
        ("listeners.PLAINTEXT.connections_max", "many", "expected a whole number, got 'many'"),
        ("listeners.PLAINTEXT.send_buffer_bytes", "0", "expected -1 (the kernel's choice) or at least 4096 bytes"),
        ("listeners.OTHER.connections_max", "1", "there is no listener OTHER; listen has PLAINTEXT"),
        ("listeners.PLAINTEXT.conections_max", "1", "did you mean listeners.PLAINTEXT.connections_max?"),
        ("listeners.connections_max", "1", "there is no listener"),
        ("listeners.PLAINTEXT.more.connections_max", "1", "there is no listener PLAINTEXT.MORE; listen has PLAINTEXT"),
    ],
)
def test_mistakes_in_the_settings_of_a_listener_are_told(name: str, value: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(assignments={name: value})
    assert error in str(raised.value)
    assert f"flag --set {name}" in str(raised.value)


def test_what_may_be_set_can_be_served() -> None:
    assert set(AVAILABLE) == set(CARRIAGES)
    assert Security.PLAINTEXT in AVAILABLE
