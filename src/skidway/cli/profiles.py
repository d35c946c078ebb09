"""Profiles: named brokers and settings in a file of the user, so that commands need no `--bootstrap`.

The file is `skidway/profiles.toml` in `$XDG_CONFIG_HOME` (`~/.config`), or what SKIDWAY_PROFILES names:

    default = "staging"

    [profiles.staging]
    bootstrap = "kafka-1.example:9092,kafka-2.example:9092"
    timeout = 10.0

In force is the profile that `--profile NAME` (before the command or after it) or SKIDWAY_PROFILE names, or the default
one. A flag wins over the environment (SKIDWAY_BOOTSTRAP), that over the profile. A file that cannot be read, or a
setting that is not known, is `BadProfile`: commands would talk to the wrong broker otherwise.
"""

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skidway.cli.help.misspelt import question

FILE_VARIABLE = "SKIDWAY_PROFILES"
NAME_VARIABLE = "SKIDWAY_PROFILE"
Setting = str | float
SETTINGS: dict[str, tuple[type[Setting], str]] = {
    "bootstrap": (str, "HOST:PORT[,…], the brokers to ask first"),
    "timeout": (float, "seconds to wait for an answer"),
}


class BadProfile(ValueError):
    """A file or a name that commands cannot go by."""


@dataclass(slots=True)
class Profiles:
    path: Path
    profiles: dict[str, dict[str, Setting]] = field(default_factory=dict)
    default: str | None = None

    def settings(self, name: str) -> dict[str, Setting]:
        if name not in self.profiles:
            known = f"there are {', '.join(sorted(self.profiles))}" if self.profiles else "there are none yet"
            hint = question(name, self.profiles) or known
            raise BadProfile(f"there is no profile {name} in {self.path}; {hint}")
        return self.profiles[name]

    def save(self) -> None:
        """Readable by the user alone: what may be kept here later is not for others."""
        lines = [f"default = {_quoted(self.default)}\n"] if self.default is not None else []
        for name, settings in sorted(self.profiles.items()):
            lines.append(f"\n[profiles.{_quoted(name)}]\n")
            lines += [f"{key} = {_quoted(value)}\n" for key, value in sorted(settings.items())]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write("".join(lines))
        fresh.replace(self.path)


def profiles_file() -> Path:
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "skidway" / "profiles.toml"


def load_profiles() -> Profiles:
    path = profiles_file()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Profiles(path)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadProfile(f"cannot read {path}: {error}") from None
    return _parse(path, document)


def chosen_name(profiles: Profiles) -> str | None:
    """The profile in force, if there is one."""
    return os.environ.get(NAME_VARIABLE) or profiles.default


def chosen_settings() -> dict[str, Setting]:
    """What the profile in force says; nothing without one."""
    if not os.environ.get(NAME_VARIABLE) and not profiles_file().exists():
        return {}
    profiles = load_profiles()
    name = chosen_name(profiles)
    return {} if name is None else profiles.settings(name)


def complete_profile(incomplete: str) -> list[str]:
    """For the shell."""
    try:
        return [name for name in load_profiles().profiles if name.startswith(incomplete)]
    except BadProfile:
        return []


def _parse(path: Path, document: dict[str, Any]) -> Profiles:
    unknown = document.keys() - {"default", "profiles"}
    tables = document.get("profiles", {})
    default = document.get("default")
    if unknown or not isinstance(tables, dict) or not isinstance(default, str | None):
        raise BadProfile(f'{path}: expected default = "NAME" and tables [profiles.NAME]')
    profiles = Profiles(path, default=default)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise BadProfile(f"{path}: expected a table [profiles.{name}]")
        profiles.profiles[name] = {key: checked(f"{path}: profile {name}", key, value) for key, value in table.items()}
    return profiles


def checked(origin: str, key: str, value: object) -> Setting:
    if key not in SETTINGS:
        raise BadProfile(f"{origin}: unknown setting {key}; known settings are {', '.join(SETTINGS)}")
    kind, meaning = SETTINGS[key]
    if kind is str and isinstance(value, str):
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    raise BadProfile(f"{origin}: {key} is {value!r}; expected {meaning}")


def _quoted(value: object) -> str:
    """As TOML writes it."""
    if not isinstance(value, str):
        return repr(value)
    escaped = "".join(
        f"\\u{ord(letter):04x}" if ord(letter) < 32 or letter in '"\\\x7f' else letter for letter in value
    )
    return f'"{escaped}"'
