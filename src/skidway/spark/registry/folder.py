"""A schema registry that is a folder of files: for tests, and where there is no server.

    FOLDER/SUBJECT/VERSION-ID.avsc, .proto or .json     a schema; version and id are whole numbers
    FOLDER/SUBJECT/VERSION-ID.references.json           what it refers to: [{"name": …, "subject": …, "version": …}]

An id is that of one schema; the same schema may be there under several subjects. What a URL could not have in it is
percent-encoded in the names of subjects, as `/` is. The folder is read whenever it is asked; tasks on other machines
need it under the same path.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from skidway.spark.registry.schemas import (
    AVRO,
    JSON,
    LATEST,
    PROTOBUF,
    SCHEMA_BYTES_MAX,
    Answer,
    Pointer,
    RegistryFailed,
    UnknownSchema,
)

ENDINGS = {"avsc": AVRO, "proto": PROTOBUF, "json": JSON}
NAME = re.compile(r"(\d{1,9})-(\d{1,10})\.(avsc|proto|json)")


@dataclass(slots=True, frozen=True)
class FolderRegistry:
    folder: str

    def by_id(self, schema_id: int) -> Answer:
        for subject in self._folders():
            for _, found, path in _schemas(subject):
                if found == schema_id:
                    return _read(path)
        raise UnknownSchema(f"id {schema_id}")

    def by_guid(self, guid: str) -> Answer:
        """Files have ids only."""
        raise UnknownSchema(f"GUID {guid}")

    def by_version(self, subject: str, version: str) -> Answer:
        # "..", which quote leaves as it is, is no folder of a subject.
        found = [] if subject in (".", "..") else _schemas(Path(self.folder) / quote(subject, safe=" "))
        for number, _, path in sorted(found, reverse=True):
            if version in (LATEST, str(number)):
                return _read(path)
        raise UnknownSchema(f"{subject} version {version}")

    def _folders(self) -> list[Path]:
        try:
            return sorted(one for one in Path(self.folder).iterdir() if one.is_dir())
        except OSError as error:
            raise RegistryFailed(f"the registry folder {self.folder} cannot be read: {error.strerror}") from None


def _schemas(subject: Path) -> list[tuple[int, int, Path]]:
    """Version, id and file of each."""
    matches = [(NAME.fullmatch(path.name), path) for path in subject.glob("*-*")]
    return [(int(match[1]), int(match[2]), path) for match, path in matches if match is not None]


def _read(path: Path) -> Answer:
    pointers = path.with_name(f"{path.stem}.references.json")
    try:
        references = msgspec.json.decode(_bounded(pointers), type=list[Pointer]) if pointers.exists() else []
        return Answer(_bounded(path).decode(), ENDINGS[path.suffix[1:]], references)
    except (OSError, ValueError) as error:
        raise RegistryFailed(f"the schema {path} cannot be read: {error}") from None


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        text = file.read(SCHEMA_BYTES_MAX + 1)
    if len(text) > SCHEMA_BYTES_MAX:
        raise RegistryFailed(f"the schema {path} has more than {SCHEMA_BYTES_MAX} bytes")
    return text
