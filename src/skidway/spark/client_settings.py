"""What source and sink have in common in their options: where the brokers are, how to talk to them, how to refuse.

Options keep the names of Spark's Kafka connector. Spark folds their case, so a name is compared without it and shown
as documented. An option that nobody knows is an error that names the nearest one that exists: a job that starts with
a misspelt option does something else than its author believes. Settings of Kafka's clients arrive as `kafka.*`: those
with a meaning here are used, pure tuning of the Java client is taken without effect (and logged), security that the
brokers do not have is refused.
"""

import difflib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from skidway.blocking_client.addresses import parse_bootstrap
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import REPLY_BYTES_MAX
from skidway.blocking_client.errors import BadAddress
from skidway.limits import INT32_MAX

BOOTSTRAP = "kafka.bootstrap.servers"
BOOTSTRAP_SHORT = "bootstrap.servers"
CLIENT_ID = "kafka.client.id"
REQUEST_TIMEOUT = "kafka.request.timeout.ms"
SECURITY_PROTOCOL = "kafka.security.protocol"
CLIENT_OPTIONS = (BOOTSTRAP, BOOTSTRAP_SHORT, CLIENT_ID, REQUEST_TIMEOUT, SECURITY_PROTOCOL)
"""Known to source and sink alike."""

REQUEST_TIMEOUT_MS = 30_000
CLIENT_NAME = "skidway-spark"
SECURITY_PREFIXES = ("kafka.ssl.", "kafka.sasl.", "kafka.security.", "kafka.kerberos.")

WITHOUT_EFFECT = frozenset(
    {
        "kafka.auto.include.jmx.reporter",
        "kafka.client.dns.lookup",
        "kafka.connections.max.idle.ms",
        "kafka.enable.metrics.push",
        "kafka.metadata.max.age.ms",
        "kafka.metric.reporters",
        "kafka.metrics.num.samples",
        "kafka.metrics.recording.level",
        "kafka.metrics.sample.window.ms",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.retry.backoff.max.ms",
        "kafka.retry.backoff.ms",
        "kafka.send.buffer.bytes",
        "kafka.socket.connection.setup.timeout.max.ms",
        "kafka.socket.connection.setup.timeout.ms",
    }
)
"""Tuning of Kafka's Java client that changes no result: a job that brings it along runs as it is."""

logger = logging.getLogger(__name__)


class BadOption(ValueError):
    """An option that is unknown, contradictory or out of range; the text names it and says what to do."""

    def __init__(self, option: str, problem: str, fix: str) -> None:
        self.option = option
        super().__init__(f"option {option}: {problem}; {fix}")


@dataclass(slots=True)
class Given:
    """The options somebody set, under their documented names; each question checks what it reads."""

    values: dict[str, str]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self.values.get(name)
        if value is None:
            return default
        if not value.strip():
            raise BadOption(name, "it is empty", "give it a value or leave it out")
        return value.strip()

    def number(self, name: str, default: int, low: int, high: int = INT32_MAX) -> int:
        value = self.text(name)
        if value is None:
            return default
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19) or not low <= int(value) <= high:
            raise BadOption(
                name, f"{value!r} is not a number in its range", f"give a whole number from {low} to {high}"
            )
        return int(value)

    def choice(self, name: str, default: str, choices: Collection[str]) -> str:
        """One of the words, whatever their case."""
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise BadOption(name, f"{value!r} is not one of its values", f"choose from {', '.join(sorted(choices))}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, str(default).lower(), ("true", "false")) == "true"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where the brokers are and how patient to be with them. Small and picklable: it travels to every task."""

    bootstrap: str
    client_id: str = CLIENT_NAME
    request_timeout_ms: int = REQUEST_TIMEOUT_MS

    @classmethod
    def parse(cls, given: Given) -> "ClientSettings":
        protocol = given.text(SECURITY_PROTOCOL, "PLAINTEXT")
        if protocol is not None and protocol.upper() != "PLAINTEXT":
            raise _insecure(SECURITY_PROTOCOL)
        return cls(
            bootstrap=_bootstrap(given),
            client_id=given.text(CLIENT_ID) or CLIENT_NAME,
            request_timeout_ms=given.number(REQUEST_TIMEOUT, REQUEST_TIMEOUT_MS, low=1),
        )

    def cluster(self, *, reply_bytes_max: int = REPLY_BYTES_MAX) -> Cluster:
        """A client of its own; connections are made when first needed."""
        return Cluster(
            self.bootstrap,
            client_id=self.client_id,
            timeout_ms=self.request_timeout_ms,
            reply_bytes_max=reply_bytes_max,
        )


def sort_out(
    options: Mapping[str, str],
    known: Collection[str],
    refused: Mapping[str, tuple[str, str]],
    without_effect: Collection[str] = (),
) -> Given:
    """The options under their documented names, or BadOption for the first that is not to be taken.

    `known` has this side's options beside the common ones; `refused` has those that Kafka's connector has or refuses,
    with the problem and the fix: a better answer than "unknown". `without_effect` adds to WITHOUT_EFFECT.
    """
    names = {name.lower(): name for name in (*CLIENT_OPTIONS, *known)}
    reasons = {name.lower(): (name, reason) for name, reason in refused.items()}
    values: dict[str, str] = {}
    idle: list[str] = []
    for given, value in options.items():
        folded = given.lower()
        if folded in names:
            values[names[folded]] = str(value)
        elif folded in reasons:
            name, (problem, fix) = reasons[folded]
            raise BadOption(name, problem, fix)
        elif folded in WITHOUT_EFFECT or folded in without_effect:
            idle.append(folded)
        elif folded.startswith(SECURITY_PREFIXES):
            raise _insecure(folded)
        else:
            raise _unknown(given, names)
    if idle:
        logger.warning("accepted without effect, because they tune Kafka's Java client: %s", ", ".join(sorted(idle)))
    return Given(values)


def _bootstrap(given: Given) -> str:
    long, short = given.text(BOOTSTRAP), given.text(BOOTSTRAP_SHORT)
    if long is not None and short is not None and long != short:
        raise BadOption(BOOTSTRAP_SHORT, f"it contradicts {BOOTSTRAP}", "leave one of them out")
    bootstrap = long or short
    if bootstrap is None:
        raise BadOption(BOOTSTRAP, "it is missing", "say where the brokers are, as host:port[,host:port…]")
    try:
        parse_bootstrap(bootstrap)
    except BadAddress as error:
        raise BadOption(BOOTSTRAP, str(error), "give host:port[,host:port…]") from None
    return bootstrap


def _insecure(name: str) -> BadOption:
    return BadOption(
        name,
        "the brokers have no TLS and no SASL yet, and settings for them are not passed over in silence",
        "leave it out and connect to a plain listener (PLAINTEXT)",
    )


def _unknown(given: str, names: Mapping[str, str]) -> BadOption:
    close = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.6)
    if close:
        return BadOption(given, "there is no such option", f"did you mean {names[close[0]]}?")
    return BadOption(given, "there is no such option", f"the options are {', '.join(sorted(names.values()))}")
