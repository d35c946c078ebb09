"""Routes: what every request of one API and version has in common, made from the API table on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skidway.broker.api.admission import nodes_only, with_shares
from skidway.broker.api.call import Handle, Part, Route
from skidway.broker.api.forwarding import forwarded
from skidway.broker.api.table import API_VERSIONS_KEY, SERVED, Audience, ServedApi, Where
from skidway.broker.handlers import api_versions
from skidway.ports import Buffer
from skidway.steps import Steps
from skidway.wire.registry import api


def _admitted(row: ServedApi) -> Handle:
    if row.audience is Audience.NODES:
        return nodes_only(row.handle)
    return with_shares(row.handle) if row.of_shares else row.handle


class Routes(dict[tuple[int, int], Route]):
    """(key, version) -> route, made on first use; KeyError for what is not served."""

    def __init__(self, elements_max: int, rows: Mapping[int, ServedApi] = SERVED) -> None:
        super().__init__()
        self.elements_max = elements_max
        self._rows = rows
        self._versions = {key: row.versions for key, row in rows.items()}
        self.advertised = {key: row.versions for key, row in rows.items() if row.audience is Audience.CLIENTS}
        """The versions of each API that ApiVersions lists."""
        self.listed: dict[bool, list[Any]] = {}
        """As it lists them, to our own clients and to others."""

    def newest(self, key: int) -> Route:
        return self[key, self._versions[key][1]]

    def __missing__(self, key_and_version: tuple[int, int]) -> Route:
        key, version = key_and_version
        first, last = self._versions[key]
        if key == API_VERSIONS_KEY and not first <= version <= last:
            return self._api_versions_fallback()
        if not first <= version <= last:
            raise KeyError(key_and_version)
        route = self[key_and_version] = self._build(key, version)
        return route

    def _build(self, key: int, version: int) -> Route:
        row, served = self._rows[key], api(key)
        elements_max = min(self.elements_max, row.elements_max or self.elements_max)

        def decode_steps(frame: Buffer, position: int, held: list[Any]) -> Steps[tuple[object, int]]:
            return (yield from served.request.stepwise_decoder(version)(frame, position, elements_max, held))

        def encode_steps(response: Any, parts: list[Part], errors: dict[int, int]) -> Steps[None]:
            yield from served.response.stepwise_encoder(version)(response, parts, errors)

        return Route(
            key,
            served.name,
            version,
            _admitted(row),
            served.request.decoder(version),
            served.response.encoder(version),
            # An ApiVersions reply has the oldest header: its sender does not know what we speak yet.
            tagged_header=served.is_flexible(version) and key != API_VERSIONS_KEY,
            has_slices=row.sends_files,
            forwarding=forwarded(row.handle, row.stays_here) if row.where is Where.CONTROLLER else None,
            early=row.early,
            elements_at_once=min(elements_max, row.elements_at_once or elements_max),
            decode_steps=decode_steps,
            tried_at_once=row.elements_at_once is not None,
            encode_steps=encode_steps,
            takes=row.takes,
        )

    def _api_versions_fallback(self) -> Route:
        served = api(API_VERSIONS_KEY)
        return Route(
            API_VERSIONS_KEY,
            served.name,
            0,
            api_versions.handle_unknown_version,
            lambda frame, position, elements_max: (None, position),
            served.response.encoder(0),
            tagged_header=False,
            has_slices=False,
        )
