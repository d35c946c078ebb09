"""Listeners as operators write them: what `listen`, `advertise`, `inter_broker_listener` and `[listeners.NAME]` mean.

`[NAME=]HOST:PORT,…`: an address without a name is the listener PLAINTEXT, so a broker with one listener needs no
names. Names are in capitals, however they were written, as in Kafka. `http` is one more listener, named HTTP.
Errors are WrongListeners with the setting that is wrong and a sentence that says what was expected.
"""

import re
from collections.abc import Mapping

import msgspec

from skidway.broker.listeners import DEFAULT_NAME, Address, Listeners, ListenerSpec, Security
from skidway.limits import KIB
from skidway.server.addresses import parse_address

AVAILABLE = (Security.PLAINTEXT, Security.HTTP)
HTTP_NAME = Security.HTTP.name
KAFKA_PORT = 9092
DEFAULT_HTTP = Address("127.0.0.1", 8082)
HTTP_OFF = "off"
LISTENERS_MAX = 16
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
SEND_BUFFER_BYTES_MIN = 4 * KIB
UNNAMED = ""


class WrongListeners(ValueError):
    def __init__(self, setting: str, text: str) -> None:
        super().__init__(text)
        self.setting = setting


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one listener, where it differs from the others; None: as for all of them."""

    security: str | None = None
    send_buffer_bytes: int | None = None
    connections_max: int | None = None
    connections_per_ip_max: int | None = None


NO_SETTINGS = ListenerSettings()


def build_listeners(
    listen: str,
    advertise: str | None,
    inter_broker: str | None,
    settings: Mapping[str, ListenerSettings],
    http: str | None = HTTP_OFF,
) -> Listeners:
    """Ports may still be 0: they are known when the sockets are bound."""
    bound = parse_listeners("listen", listen)
    if UNNAMED in bound and DEFAULT_NAME in bound:
        raise WrongListeners("listen", f"the listener {DEFAULT_NAME} has two addresses: expected one")
    bound = {name or DEFAULT_NAME: address for name, address in bound.items()}
    advertised = advertised_addresses(advertise, list(bound))
    by_default = http is None and any(address.port == KAFKA_PORT for address in bound.values())
    if (address := _http_address(http, by_default)) is not None and HTTP_NAME not in bound:
        bound[HTTP_NAME] = address
    _refuse_shared_ports(bound)
    for name in settings:
        _require_listener(f"listeners.{name}", name, list(bound))
    specs = tuple(
        ListenerSpec(
            name,
            address,
            advertised.get(name) or _own_address(address),
            _security(name, settings),
            optional=by_default and name == HTTP_NAME,
        )
        for name, address in bound.items()
    )
    return Listeners(specs, _for_nodes(inter_broker, specs))


def _http_address(http: str | None, by_default: bool) -> Address | None:
    """A broker at Kafka's port has an address for HTTP unless it was told otherwise; one elsewhere has none unless it
    was told so, because many brokers may run on a machine and 8082 is one port."""
    if http is None:
        return DEFAULT_HTTP if by_default else None
    if http.strip().lower() == HTTP_OFF:
        return None
    try:
        return parse_address(http)
    except ValueError as error:
        raise WrongListeners("http", f"{error}, or {HTTP_OFF}") from None


def parse_listeners(setting: str, text: str) -> dict[str, Address]:
    """By name, in their order; UNNAMED for one without a name."""
    found: dict[str, Address] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, rest = entry.rpartition("=")
        name = name.strip()
        if "://" in rest:
            raise WrongListeners(setting, f"{entry!r}: expected NAME=HOST:PORT, without ://")
        if equals and not NAME.fullmatch(name):
            expected = "expected a name of letters, digits, _ and - before the ="
            raise WrongListeners(setting, f"{entry!r}: {expected}")
        name = name.upper()
        try:
            address = parse_address(rest.strip())
        except ValueError as error:
            raise WrongListeners(setting, str(error)) from None
        if name in found:
            shown = f"the listener {name} is named twice" if name else "two addresses have no name"
            raise WrongListeners(setting, f"{shown}: give each its own, such as INSIDE=HOST:PORT")
        found[name] = address
    if not found:
        raise WrongListeners(setting, "expected HOST:PORT, got an empty value")
    if len(found) > LISTENERS_MAX:
        raise WrongListeners(setting, f"expected at most {LISTENERS_MAX} listeners, got {len(found)}")
    return found


def advertised_addresses(advertise: str | None, names: list[str]) -> dict[str, Address]:
    """By the names of listeners, as far as they were given. Without a name: that of the only listener, or PLAINTEXT."""
    found: dict[str, Address] = {}
    if advertise is None:
        return found
    for name, address in parse_listeners("advertise", advertise).items():
        if not name and len(names) > 1 and DEFAULT_NAME not in names:
            expected = f"expected NAME=HOST:PORT, with a name of {_listed(names)}"
            raise WrongListeners("advertise", f"{str(address)!r}: {expected}")
        named = name or (names[0] if len(names) == 1 else DEFAULT_NAME)
        _require_listener("advertise", named, names)
        if named in found:
            raise WrongListeners("advertise", f"the listener {named} has two addresses: expected one")
        if address.is_wildcard:
            expected = "expected a host that clients can connect to"
            raise WrongListeners("advertise", f"{expected}, got {str(address)!r}, which means all addresses")
        found[named] = address
    return found


def _require_listener(setting: str, name: str, names: list[str]) -> None:
    if name not in names:
        raise WrongListeners(setting, f"there is no listener {name}; listen has {_listed(names)}")


def _refuse_shared_ports(bound: Mapping[str, Address]) -> None:
    taken: list[tuple[str, Address]] = []
    for name, address in bound.items():
        for other, there in taken:
            same_host = address.host == there.host or address.is_wildcard or there.is_wildcard
            if address.port and address.port == there.port and same_host:
                text = f"{other} and {name} would share the port {address.port}: every listener needs its own"
                raise WrongListeners("listen", text)
        taken.append((name, address))


def _own_address(address: Address) -> Address:
    if not address.is_wildcard:
        return address
    import socket  # only here: not every caller of the settings wants it loaded

    return Address(socket.gethostname(), address.port)


def _security(name: str, settings: Mapping[str, ListenerSettings]) -> Security:
    """As in Kafka, a listener that has the name of a security protocol speaks that one."""
    chosen = settings.get(name, NO_SETTINGS).security
    text = (chosen or (name if name in Security.__members__ else DEFAULT_NAME)).upper()
    available = _listed([security.name for security in AVAILABLE])
    if text not in Security.__members__:
        expected = available.replace(" and ", " or ")
        raise WrongListeners(f"listeners.{name}.security", f"expected {expected}, got {chosen!r}")
    if Security[text] not in AVAILABLE:
        setting = "listen" if chosen is None else f"listeners.{name}.security"
        raise WrongListeners(setting, f"the listener {name} needs {text}, which is not available yet, only {available}")
    return Security[text]


def _for_nodes(inter_broker: str | None, specs: tuple[ListenerSpec, ...]) -> ListenerSpec:
    specs = tuple(spec for spec in specs if spec.is_kafka)
    names = [spec.name for spec in specs]
    if not names:
        raise WrongListeners("listen", "expected a listener for Kafka's protocol, got none but for HTTP")
    if inter_broker is None and len(specs) > 1 and DEFAULT_NAME not in names:
        text = f"expected one of {_listed(names)}: the listener by which nodes speak to each other"
        raise WrongListeners("inter_broker_listener", text)
    chosen = inter_broker.upper() if inter_broker is not None else names[0] if len(names) == 1 else DEFAULT_NAME
    _require_listener("inter_broker_listener", chosen, names)
    return specs[names.index(chosen)]


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
