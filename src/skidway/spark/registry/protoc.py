"""Protobuf schemas as descriptors: a registry has them as `.proto` text, some writers give them to it serialized.

The text is compiled by the protoc that `grpcio-tools` brings, in a process and a folder of its own: whatever a schema
does to the compiler, and however long it takes, it does to that process only.
"""

import base64
import binascii
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from skidway.spark.registry.schemas import BadSchema, RegistryFailed, Schema

TIMEOUT_S = 60.0
ROOT = "schema.proto"
OWN = "google/protobuf/"
"""What protoc brings along."""
PATH = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


def files_of(schema: Schema) -> list[FileDescriptorProto]:
    """Those that the schema needs, each after what it needs, and that of the schema as the last."""
    given = _serialized(ROOT, schema.text)
    if given is None:
        return _compiled(schema)
    needed = []
    for name, text in schema.references:
        one = _serialized(name, text)
        if one is None:
            raise BadSchema(f"the Protobuf schema is serialized, and {name}, which it needs, is not")
        needed.append(one)
    return [*needed, given]


def _serialized(name: str, text: str) -> FileDescriptorProto | None:
    """None if it is text. A file is known by the name that others have for it."""
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    found.name = name
    return found


def _compiled(schema: Schema) -> list[FileDescriptorProto]:
    with tempfile.TemporaryDirectory(prefix="skidway-protoc-") as folder:
        for name, text in schema.references:
            if not name.startswith(OWN):
                _put(Path(folder), name, text)
        _put(Path(folder), ROOT, schema.text)
        return _run(Path(folder))


def _put(folder: Path, name: str, text: str) -> None:
    """A name is an import in a schema, which anybody may have written: it stays in the folder."""
    if not PATH.fullmatch(name) or ".." in name.split("/"):
        raise BadSchema(f"the Protobuf schema needs {name[:100]!r}, which is no path of a file")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def _run(folder: Path) -> list[FileDescriptorProto]:
    made = folder / "descriptors"
    # "-I": not what lies in the working directory. grpc_tools knows by itself where its own imports are.
    command = [sys.executable, "-I", "-m", "grpc_tools.protoc", f"--proto_path={folder}", "--include_imports"]
    try:
        done = subprocess.run(
            [*command, f"--descriptor_set_out={made}", ROOT],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        raise BadSchema(f"protoc did not end within {TIMEOUT_S:.0f} s with the Protobuf schema") from None
    told = done.stderr.decode(errors="replace").strip()
    if "No module named" in told:
        raise RegistryFailed("Protobuf schemas need grpcio-tools: install skidway[registry]")
    if done.returncode or not made.exists():
        raise BadSchema(
            f"the Protobuf schema cannot be compiled: {told[:300] or f'protoc ended with {done.returncode}'}"
        )
    return list(FileDescriptorSet.FromString(made.read_bytes()).file)
