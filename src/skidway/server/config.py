"""What an operator may set, and from where: flags win over environment over file over defaults.

The file is TOML. An environment variable is `SKIDWAY_` and the setting's name in capitals, with `__` before a name
inside a table: SKIDWAY_NODE_ID, SKIDWAY_LIMITS__CONNECTIONS_MAX. A topic default is set by its Kafka name
(`"retention.ms" = 1000` under `[topic_defaults]`, or SKIDWAY_TOPIC_DEFAULTS__RETENTION_MS). A setting of one listener
is in a table of its own (`[listeners.OUTSIDE]`, or SKIDWAY_LISTENERS__OUTSIDE__CONNECTIONS_MAX).
Anything unknown or wrong stops the start with one sentence: what, where, what was expected, and the closest name.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import msgspec.structs
from msgspec.structs import replace

from skidway.broker.listeners import DEFAULT_NAME, Listeners
from skidway.groups.settings import GroupSettings, ShareGroupSettings
from skidway.limits import DEFAULT_LIMITS, DEFAULT_SEND_BUFFER_BYTES, INT32_MAX, Limits
from skidway.quorum.settings import QuorumSettings
from skidway.server.addresses import parse_nodes
from skidway.server.listening import (
    NO_SETTINGS,
    SEND_BUFFER_BYTES_MIN,
    ListenerSettings,
    WrongListeners,
    advertised_addresses,
    build_listeners,
    parse_listeners,
)
from skidway.server.service_links import is_service_link
from skidway.shares.coordinator.settings import ShareCoordinatorSettings
from skidway.transactions.settings import TransactionSettings

ENVIRONMENT_PREFIX = "SKIDWAY_"
TABLE_SEPARATOR = "__"
DEFAULT_GROUPS = GroupSettings()
DEFAULT_QUORUM = QuorumSettings()
DEFAULT_SHARES = ShareCoordinatorSettings()
DEFAULT_TRANSACTIONS = TransactionSettings()
ROLES = ("broker", "controller")
# Set by other parts of the project, not by an operator.
ENVIRONMENT_RESERVED = (
    "SKIDWAY_CONFIG",
    "SKIDWAY_BOOTSTRAP",
    "SKIDWAY_PROFILE",
    "SKIDWAY_PROFILES",
    "SKIDWAY_MASK_SALT",
    "SKIDWAY_REGISTRY_USER",
    "SKIDWAY_REGISTRY_PASSWORD",
    "SKIDWAY_REGISTRY_TOKEN",
)

Value = Any
"""What TOML can hold, or a string from the environment or from a flag."""


class ConfigError(Exception):
    """The settings cannot be used; the message is for the operator."""


class UpkeepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is done in the background, and how often."""

    retention_check_ms: int = 300_000
    checkpoint_ms: int = 60_000
    compaction_check_ms: int = 15_000
    scrub_interval_ms: int = 604_800_000
    """Everything stored is read and checked once in this time; 0: never."""
    scrub_bytes_per_second: int = 8 << 20
    sync_threads: int = 4


class CoordinatorSettings(UpkeepSettings, frozen=True, kw_only=True):
    """What coordinators do, a table for each kind."""

    groups: GroupSettings = DEFAULT_GROUPS
    transactions: TransactionSettings = DEFAULT_TRANSACTIONS
    shares: ShareCoordinatorSettings = DEFAULT_SHARES


class DoorSettings(CoordinatorSettings, frozen=True, kw_only=True):
    """Other protocols than Kafka's."""

    http: str | None = None
    """HOST:PORT of the listener for HTTP, or `off`. None: 127.0.0.1:8082 if the broker listens on port 9092, where a
    taken port is a warning; else none."""
    sqs_keys: str | None = None
    """`ID:SECRET,ID:SECRET`: who may sign requests to SQS. None: on a loopback address anybody, else nobody."""

    def sqs_secrets(self) -> dict[str, str]:
        """By key id. Raises ValueError, which does not show them."""
        secrets: dict[str, str] = {}
        for number, pair in enumerate((self.sqs_keys or "").split(","), 1):
            key_id, _, secret = pair.strip().partition(":")
            if key_id and secret:
                secrets[key_id] = secret
            elif pair.strip():
                raise ValueError(f"expected ID:SECRET pairs with commas between them, and pair {number} is not one")
        return secrets


class Settings(DoorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data_dir: str = "data"
    require_data: bool = False
    """Whether an empty or missing data directory stops the start."""
    node_id: int = 1
    listen: str = "127.0.0.1:9092"
    """HOST:PORT, or several as NAME=HOST:PORT."""
    advertise: str | None = None
    """What clients are told to connect to, in the same form; by default the listen address, or the host's name for
    0.0.0.0."""
    inter_broker_listener: str | None = None
    """The listener by which nodes speak to each other; None: the only one, or PLAINTEXT."""
    listeners: dict[str, ListenerSettings] = {}
    cluster_id: str | None = None
    voters: str | None = None
    """`1@host:port,2@host:port`: who keeps the cluster's metadata, for the first start. None: this node, alone."""
    roles: str = "broker,controller"
    rack: str | None = None
    flush: Literal["sync", "os"] = "sync"
    auto_create_topics: bool = True
    default_partitions: int = 1
    default_replication_factor: int = 1
    topic_defaults: dict[str, str] = {}
    quorum: QuorumSettings = DEFAULT_QUORUM
    limits: Limits = DEFAULT_LIMITS
    session_timeout_ms: int = 1_200
    """A broker that was not heard of for this long is fenced: others lead in its place."""
    heartbeat_ms: int = 200
    replica_lag_ms: int = 10_000
    """A follower that was not at the end of its leader's log for this long is not in sync."""
    peer_addresses: str | None = None
    """Where other nodes are reached, whatever they say of themselves (`2@host:port,…`): for tests, and for voters that
    all moved at once."""
    send_buffer_bytes: int = DEFAULT_SEND_BUFFER_BYTES
    """Of each client's socket (SO_SNDBUF), unless its listener has another; -1 leaves it to the kernel, which grows
    it."""
    drain_ms: int = 5_000
    """How long a stopping broker waits for replies on their way."""
    leave_ms: int = 10_000
    """How long a stopping broker waits for others to take over what it leads."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def voter_list(self) -> list[tuple[int, str, int]]:
        return [(node_id, address.host, address.port) for node_id, address in parse_nodes(self.voters or "").items()]

    def role_set(self) -> frozenset[str]:
        return frozenset(role.strip() for role in self.roles.split(","))

    def listener_list(self) -> Listeners:
        """As they were set: port 0 is not known yet."""
        return build_listeners(self.listen, self.advertise, self.inter_broker_listener, self.listeners, self.http)

    def chose_address_of(self, listener: str) -> bool:
        """Whether the operator said where others reach a listener."""
        names = [name or DEFAULT_NAME for name in parse_listeners("listen", self.listen)]
        return listener in advertised_addresses(self.advertise, names)

    def of_listener(self, name: str) -> ListenerSettings:
        return self.listeners.get(name, NO_SETTINGS)


BOUNDED_GROUP_NAMES = (
    "consumer_session_timeout_ms",
    "consumer_heartbeat_interval_ms",
    "share_session_timeout_ms",
    "share_heartbeat_interval_ms",
    "share_lock_ms",
    "share_deliveries",
    "share_locks",
)
"""Settings of groups that have bounds beside them, `_min` and `_max`."""
TABLES = ("groups", "limits", "listeners", "quorum", "shares", "topic_defaults", "transactions")
NAMES = (
    *(name for name in Settings.__struct_fields__ if name not in DoorSettings.__struct_fields__),
    *DoorSettings.__struct_fields__,
)
LIMIT_NAMES = tuple(Limits.__struct_fields__)
LISTENER_NAMES = tuple(ListenerSettings.__struct_fields__)
SEVERAL = ("listen", "advertise")
"""May be a list, or a flag that is repeated."""
QUORUM_NAMES = tuple(QuorumSettings.__struct_fields__)
GROUP_NAMES = (
    "initial_rebalance_delay_ms",
    "session_timeout_ms_min",
    "session_timeout_ms_max",
    "size_max",
    "retention_ms",
    "retention_check_ms",
    "offset_metadata_bytes_max",
    "offsets_partitions",
    "consumer_session_timeout_ms",
    "consumer_session_timeout_ms_min",
    "consumer_session_timeout_ms_max",
    "consumer_heartbeat_interval_ms",
    "consumer_heartbeat_interval_ms_min",
    "consumer_heartbeat_interval_ms_max",
    "consumer_size_max",
    *ShareGroupSettings.__struct_fields__,
)
TRANSACTION_NAMES = (
    "timeout_ms_max",
    "timeout_check_ms",
    "id_expiration_ms",
    "id_expiration_check_ms",
    "state_partitions",
)
SHARE_NAMES = (
    "state_partitions",
    "state_segment_bytes",
    "state_in_sync_min",
    "updates_per_snapshot",
    "write_timeout_ms",
)
UPDATES_PER_SNAPSHOT_MAX = 500
REMOVED = {"experimental_transactions": "every broker serves transactions now; remove the setting"}
"""Settings of earlier versions, and what to do."""
POSITIVE = (
    "default_partitions",
    "default_replication_factor",
    "session_timeout_ms",
    "heartbeat_ms",
    "replica_lag_ms",
    "retention_check_ms",
    "checkpoint_ms",
    "compaction_check_ms",
    "scrub_bytes_per_second",
    "sync_threads",
)
EXPECTED = {
    int: "a whole number",
    bool: "true or false",
    str: "text",
}


def load_settings(
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Value] | None = None,
    assignments: Mapping[str, str] | None = None,
) -> Settings:
    """`flags` maps settings to the values of flags of their own, None meaning not given.

    `assignments` come from `--set NAME=VALUE` and win over all; a name in a table is `limits.connections_max`.
    """
    values: dict[str, Value] = {}
    origins: dict[str, str] = {}
    if file is not None:
        _take_file(file, values, origins)
    _take_environment(environment or {}, values, origins)
    for name, value in (flags or {}).items():
        if value is not None:
            _put(name, value, f"flag --{name.replace('_', '-')}", values, origins)
    for name, value in (assignments or {}).items():
        _put(name, value, f"flag --set {name}", values, origins)
    return _build(values, origins)


def _take_file(file: str, values: dict[str, Value], origins: dict[str, str]) -> None:
    import tomllib  # most starts have no file

    try:
        with open(file, "rb") as stream:
            document = tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None
    for name, value in document.items():
        if name in TABLES and isinstance(value, dict):
            for inner, inner_value in _flatten(value).items():
                _put(f"{name}.{inner}", inner_value, f"{file}, key {name}.{inner}", values, origins)
        else:
            _put(name, value, f"{file}, key {name}", values, origins)


def _flatten(table: dict[str, Value], prefix: str = "") -> dict[str, Value]:
    """TOML reads an unquoted `retention.ms = 1` as a table in a table; the operator meant the dotted name."""
    flat: dict[str, Value] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _take_environment(environment: Mapping[str, str], values: dict[str, Value], origins: dict[str, str]) -> None:
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in ENVIRONMENT_RESERVED:
            continue
        if is_service_link(variable, environment[variable]):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        table, separator, inner = name.partition(TABLE_SEPARATOR)
        if separator:
            # Kafka's topic settings have dots in their names, which a variable cannot have.
            dotted = inner.replace("_", ".") if table == "topic_defaults" else inner.replace(TABLE_SEPARATOR, ".")
            name = f"{table}.{dotted}"
        _put(name, environment[variable], f"environment variable {variable}", values, origins)


def _put(name: str, value: Value, origin: str, values: dict[str, Value], origins: dict[str, str]) -> None:
    if (advice := REMOVED.get(name)) is not None:
        raise ConfigError(f"{name} in {origin}: there is no such setting any more: {advice}")
    table, dot, inner = name.partition(".")
    if dot and table == "limits":
        _require_known(inner, LIMIT_NAMES, "limits.", origin)
    elif dot and table == "groups":
        _require_known(inner, GROUP_NAMES, "groups.", origin)
    elif dot and table == "quorum":
        _require_known(inner, QUORUM_NAMES, "quorum.", origin)
    elif dot and table == "transactions":
        _require_known(inner, TRANSACTION_NAMES, "transactions.", origin)
    elif dot and table == "shares":
        _require_known(inner, SHARE_NAMES, "shares.", origin)
    elif dot and table == "listeners":
        listener, _, setting = inner.rpartition(".")
        listener = listener.upper()
        _require_known(setting, LISTENER_NAMES, f"listeners.{listener or 'NAME'}.", origin)
        name = f"listeners.{listener}.{setting}"
    elif not (dot and table == "topic_defaults"):
        _require_known(name, NAMES, "", origin)
        if name in TABLES:
            raise ConfigError(f"{name} in {origin}: expected a table of settings, got {_show(value)}")
    if name in SEVERAL and isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    values[name] = value
    origins[name] = origin


def _require_known(name: str, known: tuple[str, ...], prefix: str, origin: str) -> None:
    if name in known:
        return
    import difflib  # only a mistake needs it

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = (
        f"; did you mean {prefix}{close[0]}?"
        if close
        else f"; known settings are {', '.join(prefix + n for n in known)}"
    )
    raise ConfigError(f"unknown setting {prefix}{name} in {origin}{hint}")


def _build(values: dict[str, Value], origins: dict[str, str]) -> Settings:
    top: dict[str, Value] = {}
    limits: dict[str, int] = {}
    groups: dict[str, int] = {}
    numbers: dict[str, dict[str, int]] = {"quorum": {}, "shares": {}, "transactions": {}}
    listeners: dict[str, dict[str, Any]] = {}
    topic_defaults: dict[str, str] = {}
    for name, value in values.items():
        table, dot, inner = name.partition(".")
        if dot and table == "limits":
            limits[inner] = _convert(name, value, int, origins[name])
        elif dot and table == "groups":
            groups[inner] = _convert(name, value, int, origins[name])
            if groups[inner] < (0 if inner.endswith("_ms") else 1):
                raise ConfigError(f"{name} in {origins[name]}: expected a positive number, got {groups[inner]}")
        elif dot and table in numbers:
            number = numbers[table][inner] = _convert(name, value, int, origins[name])
            if name == "shares.updates_per_snapshot":
                if not 0 <= number <= UPDATES_PER_SNAPSHOT_MAX:
                    expected = f"0 to {UPDATES_PER_SNAPSHOT_MAX}"
                    raise ConfigError(f"{name} in {origins[name]}: expected {expected}, got {number}")
            elif number <= 0:
                raise ConfigError(f"{name} in {origins[name]}: expected a positive number, got {number}")
        elif dot and table == "listeners":
            listener, _, setting = inner.rpartition(".")
            converted = _convert(name, value, _LISTENER_TYPES[setting], origins[name])
            listeners.setdefault(listener, {})[setting] = converted
        elif dot:
            topic_defaults[inner] = _topic_value(name, value, origins[name])
        else:
            top[name] = _convert(name, value, _FIELD_TYPES[name], origins[name])
    settings = Settings(
        **top,
        topic_defaults=topic_defaults,
        listeners={name: ListenerSettings(**chosen) for name, chosen in listeners.items()},
        limits=_build_limits(limits, origins),
        groups=_build_groups(groups, origins),
        quorum=replace(DEFAULT_QUORUM, **numbers["quorum"]),
        shares=replace(DEFAULT_SHARES, **numbers["shares"]),
        transactions=replace(DEFAULT_TRANSACTIONS, **numbers["transactions"]),
    )
    _check(settings, origins)
    return settings


def _build_groups(values: dict[str, int], origins: dict[str, str]) -> GroupSettings:
    changes: dict[str, Any] = dict(values)
    for name in BOUNDED_GROUP_NAMES:
        value = values.get(name, getattr(DEFAULT_GROUPS, name))
        # A bound that was not set follows the value it must not exclude.
        low = changes.setdefault(f"{name}_min", min(value, getattr(DEFAULT_GROUPS, f"{name}_min")))
        high = changes.setdefault(f"{name}_max", max(value, getattr(DEFAULT_GROUPS, f"{name}_max")))
        if not low <= value <= high:
            named = [each for each in (f"{name}_min", f"{name}_max", name) if each in values]
            where = "; ".join(sorted({origins[f"groups.{each}"] for each in named}))
            raise ConfigError(f"groups.{name} is {value}, but must be between {low} and {high} (set in {where})")
    return replace(DEFAULT_GROUPS, **changes)


def _build_limits(values: dict[str, int], origins: dict[str, str]) -> Limits:
    # A bound that was not set follows the one it must not exceed.
    if "connections_max" in values:
        values.setdefault(
            "connections_per_ip_max", min(values["connections_max"], DEFAULT_LIMITS.connections_per_ip_max)
        )
    if "frame_bytes_max" in values:
        values.setdefault("receive_bytes_max", max(values["frame_bytes_max"], DEFAULT_LIMITS.receive_bytes_max))
    try:
        return Limits(**values)
    except ValueError as error:
        named = [f"limits.{name}" for name in values if f"limits.{name}" in str(error)]
        where = sorted({origins[name] for name in named if name in origins})
        raise ConfigError(f"{error} (set in {'; '.join(where)})" if where else str(error)) from None


def _topic_value(name: str, value: Value, origin: str) -> str:
    """Kafka writes every topic setting as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{name} in {origin}: expected text, a number, true or false, got {_show(value)}")


def _convert(name: str, value: Value, kind: Any, origin: str) -> Any:
    """Text from the environment or a flag becomes the type that is wanted; TOML values must have it already."""
    strict = not isinstance(value, str)
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        raise ConfigError(f"{name} in {origin}: expected {_expected(kind)}, got {_show(value)}") from None


def _expected(kind: Any) -> str:
    if kind in EXPECTED:
        return EXPECTED[kind]
    options = getattr(kind, "__args__", ())
    if int in options:
        return EXPECTED[int]
    texts = [repr(option) for option in options if isinstance(option, str)]
    return f"one of {', '.join(texts)}" if texts else "text"


def _show(value: Value) -> str:
    return f"{value!r}" if isinstance(value, str | int | float) else f"a {type(value).__name__}"


def _check_topic_defaults(settings: Settings, origins: dict[str, str]) -> None:
    if not settings.topic_defaults:
        return
    from skidway.errors import InvalidConfig
    from skidway.metadata import topic_configs  # only where it is needed: it is most of what there is to load

    for name, value in settings.topic_defaults.items():
        origin = origins[f"topic_defaults.{name}"]
        _require_known(name, tuple(topic_configs.TOPIC_KEYS), "topic_defaults.", origin)
        try:
            topic_configs.validate({name: value})
        except InvalidConfig as error:
            raise ConfigError(f"topic_defaults.{name} in {origin}: {error}") from None


def _check_cluster(settings: Settings, origins: dict[str, str]) -> None:
    for name in ("voters", "peer_addresses"):
        try:
            parse_nodes(getattr(settings, name) or "")
        except ValueError as error:
            raise ConfigError(f"{name} in {origins[name]}: {error}") from None
    try:
        settings.sqs_secrets()
    except ValueError as error:
        raise ConfigError(f"sqs_keys in {origins['sqs_keys']}: {error}") from None
    roles = settings.role_set()
    if not roles <= set(ROLES):
        expected = "broker, controller or broker,controller"
        raise ConfigError(f"roles in {origins['roles']}: expected {expected}, got {settings.roles!r}")
    is_voter = settings.node_id in parse_nodes(settings.voters or "")
    if is_voter and "controller" not in roles:
        where = origins["voters"]
        raise ConfigError(f"voters in {where}: names this node ({settings.node_id}), whose roles are not controller")
    if "controller" not in roles and not settings.voters:
        raise ConfigError(
            f"roles in {origins['roles']}: a node without the role controller needs voters, to find the controller"
        )
    if settings.heartbeat_ms * 4 > settings.session_timeout_ms:
        where = "; ".join(sorted(origins[name] for name in ("heartbeat_ms", "session_timeout_ms") if name in origins))
        text = f"heartbeat_ms is {settings.heartbeat_ms}: at most a quarter of session_timeout_ms"
        raise ConfigError(f"{text} ({settings.session_timeout_ms}) is expected (set in {where})")


def _check_listeners(settings: Settings, origins: dict[str, str]) -> None:
    try:
        settings.listener_list()
    except WrongListeners as error:
        where = next((origin for name, origin in origins.items() if f"{name}.".startswith(f"{error.setting}.")), None)
        placed = f"{error.setting} is not set" if where is None else f"{error.setting} in {where}"
        raise ConfigError(f"{placed}: {error}") from None
    sizes = {"send_buffer_bytes": settings.send_buffer_bytes}
    for listener, chosen in settings.listeners.items():
        if chosen.send_buffer_bytes is not None:
            sizes[f"listeners.{listener}.send_buffer_bytes"] = chosen.send_buffer_bytes
        for name in ("connections_max", "connections_per_ip_max"):
            if (value := getattr(chosen, name)) is not None and value <= 0:
                setting = f"listeners.{listener}.{name}"
                raise ConfigError(f"{setting} in {origins[setting]}: expected a positive number, got {value}")
    for setting, size in sizes.items():
        if size != -1 and size < SEND_BUFFER_BYTES_MIN:
            expected = f"-1 (the kernel's choice) or at least {SEND_BUFFER_BYTES_MIN} bytes"
            raise ConfigError(f"{setting} in {origins[setting]}: expected {expected}, got {size}")


def _check(settings: Settings, origins: dict[str, str]) -> None:
    _check_listeners(settings, origins)
    _check_topic_defaults(settings, origins)
    for name in POSITIVE:
        if getattr(settings, name) <= 0:
            raise ConfigError(f"{name} in {origins[name]}: expected a positive number, got {getattr(settings, name)}")
    for name in ("node_id", "scrub_interval_ms", "drain_ms", "leave_ms"):
        if getattr(settings, name) < 0:
            raise ConfigError(f"{name} in {origins[name]}: expected 0 or more, got {getattr(settings, name)}")
    if settings.node_id > INT32_MAX:
        raise ConfigError(f"node_id in {origins['node_id']}: expected at most {INT32_MAX}, got {settings.node_id}")
    _check_cluster(settings, origins)
    if not settings.data_dir:
        raise ConfigError(f"data_dir in {origins['data_dir']}: expected a directory, got an empty value")


_FIELD_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Settings)}
_LISTENER_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(ListenerSettings)}
