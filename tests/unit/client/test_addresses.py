"""Bootstrap lists as people write them."""

import pytest

from skidway.blocking_client.addresses import Address, parse_bootstrap
from skidway.blocking_client.errors import BadAddress


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", [Address("localhost", 9092)]),
        ("127.0.0.1:1234", [Address("127.0.0.1", 1234)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("[::1]", [Address("::1", 9092)]),
        ("PLAINTEXT://broker:9092", [Address("broker", 9092)]),
    ],
)
def test_addresses_that_are_understood(text: str, expected: list[Address]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize(
    "text", ["", " , ", ":9092", "host:port", "host:0", "host:65536", "::1", "[::1", "[::1]x", "h:-1"]
)
def test_addresses_that_are_refused_say_what_was_expected(text: str) -> None:
    with pytest.raises(BadAddress, match=r"expected|write IPv6|must be"):
        parse_bootstrap(text)


def test_an_address_prints_as_it_is_written() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("host", 1)) == "host:1"
