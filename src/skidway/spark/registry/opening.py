"""Which registry a text names, and with which credentials; all from outside Spark."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from skidway.spark.registry.folder import FolderRegistry
from skidway.spark.registry.http import HttpRegistry, basic

USER_VARIABLE, PASSWORD_VARIABLE = "SKIDWAY_REGISTRY_USER", "SKIDWAY_REGISTRY_PASSWORD"
TOKEN_VARIABLE = "SKIDWAY_REGISTRY_TOKEN"
VARIABLES = (USER_VARIABLE, PASSWORD_VARIABLE, TOKEN_VARIABLE)


class BadRegistry(ValueError):
    """There can be no registry there; the text says what to do."""


def open_registry(place: str, environment: Mapping[str, str] = os.environ) -> HttpRegistry | FolderRegistry:
    """A URL of http or https, or a folder as a path or `file://` URL. BadRegistry if it is none."""
    if "://" not in place:
        return _folder(place)
    try:
        parts = urlsplit(place)
        port = parts.port
    except ValueError as error:
        raise BadRegistry(f"the registry's address is not a URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise BadRegistry(
            f"credentials do not go into the registry's address, where others see them: set {USER_VARIABLE} and"
            f" {PASSWORD_VARIABLE}, or {TOKEN_VARIABLE}"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise BadRegistry(f"{place} names another machine; write file:///path/of/the/folder")
        return _folder(unquote(parts.path))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise BadRegistry(f"{place} is not the address of a schema registry; write http://HOST:8081, or a folder")
    return HttpRegistry(place.rstrip("/"), _authorization(environment))


def _folder(path: str) -> FolderRegistry:
    if not Path(path).is_dir():
        raise BadRegistry(f"there is no folder {path!r} with schemas; name one, or a URL such as http://HOST:8081")
    return FolderRegistry(str(Path(path).absolute()))


def _authorization(environment: Mapping[str, str]) -> str:
    user, password, token = (environment.get(name, "") for name in VARIABLES)
    if token and (user or password):
        raise BadRegistry(f"{TOKEN_VARIABLE} and {USER_VARIABLE} are both set; a registry takes one of them")
    if any("\n" in one or "\r" in one for one in (user, password, token)):
        raise BadRegistry(f"a variable of {', '.join(VARIABLES)} has a line end in it")
    if token:
        return f"Bearer {token}"
    return basic(user, password) if user or password else ""
