"""Variables that an orchestrator adds to every container, and that only look like settings of ours.

Kubernetes describes each Service of a namespace to its pods by "service links": for a Service named `skidway` it sets
SKIDWAY_SERVICE_HOST, SKIDWAY_SERVICE_PORT, SKIDWAY_PORT=tcp://10.0.0.1:9092, SKIDWAY_PORT_9092_TCP and so on; for one
named `skidway-headless` the same behind SKIDWAY_HEADLESS_. Docker's container links have the same form and add
SKIDWAY_NAME. They are ignored. The form of name *and* value must fit, so that SKIDWAY_PORT=9092, which somebody typed,
is still refused as an unknown setting.
"""

import re
from collections.abc import Mapping

_SERVICE = r"SKIDWAY(?:_[A-Z0-9]+)*?"
_URL = r"(?:tcp|udp|sctp)://\S+"
_FORMS = tuple(
    (re.compile(f"{_SERVICE}_{name}"), re.compile(value))
    for name, value in (
        ("SERVICE_HOST", r"\S+"),
        ("SERVICE_PORT(?:_[A-Z0-9_]+)?", r"\d+"),
        ("PORT", _URL),
        (r"PORT_\d+_(?:TCP|UDP|SCTP)", _URL),
        (r"PORT_\d+_(?:TCP|UDP|SCTP)_PROTO", "tcp|udp|sctp"),
        (r"PORT_\d+_(?:TCP|UDP|SCTP)_PORT", r"\d+"),
        (r"PORT_\d+_(?:TCP|UDP|SCTP)_ADDR", r"\S+"),
        ("NAME", r"/\S+/\S+"),
    )
)


def is_service_link(variable: str, value: str) -> bool:
    return any(name.fullmatch(variable) and form.fullmatch(value) for name, form in _FORMS)


def service_links(environment: Mapping[str, str]) -> list[str]:
    """The names of those that are set."""
    return sorted(name for name, value in environment.items() if is_service_link(name, value))
