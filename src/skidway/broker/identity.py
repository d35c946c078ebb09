"""Who a data directory belongs to: `meta.properties`, as Kafka keeps it.

A directory that another node wrote is refused: two nodes with one history would both believe to lead it.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from skidway.ports import Disk, Random

PATH = "meta.properties"
VERSION = "1"


class WrongDataDirectory(Exception):
    """The data directory is not this node's, or not readable as one."""


class Identity(msgspec.Struct):
    cluster_id: str
    node_id: int
    directory_id: bytes


def base64_of(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def load_identity(
    disk: Disk, random: Random, node_id: int, cluster_id: str | None, initial_cluster_id: str | None = None
) -> Identity:
    """Read it, or write it on first use. `initial_cluster_id` is for the first use alone: it may change later."""
    if not disk.exists(PATH):
        first_id = cluster_id or initial_cluster_id or base64_of(_random_id(random))
        identity = Identity(first_id, node_id, _random_id(random))
        disk.write_atomic(PATH, _format(identity))
        return identity
    identity = _parse(disk.read(PATH).decode("utf-8", "replace"))
    if identity.node_id != node_id:
        raise WrongDataDirectory(
            f"the data directory belongs to node {identity.node_id}, this is node {node_id}; "
            f"start it with --node-id {identity.node_id} or give it another --data-dir"
        )
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise WrongDataDirectory(
            f"the data directory belongs to cluster {identity.cluster_id}, the configuration says {cluster_id}"
        )
    return identity


def _random_id(random: Random) -> bytes:
    while True:
        raw = random.randbytes(16)
        # A leading dash would be read as an option by command-line tools; the first hundred ids are reserved.
        if raw[:15] != bytes(15) and not base64_of(raw).startswith("-"):
            return raw


def _format(identity: Identity) -> bytes:
    lines = (
        f"cluster.id={identity.cluster_id}",
        f"directory.id={base64_of(identity.directory_id)}",
        f"node.id={identity.node_id}",
        f"version={VERSION}",
    )
    return ("\n".join(lines) + "\n").encode()


def _parse(text: str) -> Identity:
    lines = (line.strip() for line in text.splitlines())
    found = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    try:
        if found["version"] != VERSION:
            raise WrongDataDirectory(f"{PATH} has version {found['version']}, expected {VERSION}")
        directory_id = urlsafe_b64decode(found["directory.id"] + "==")
        return Identity(found["cluster.id"], int(found["node.id"]), directory_id)
    except (KeyError, ValueError) as error:
        raise WrongDataDirectory(f"cannot read {PATH} in the data directory: {error}") from error
