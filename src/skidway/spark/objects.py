"""Object stores: S3, Google Cloud Storage and Azure, by one client (obstore) and one set of option names.

A `Bucket` is a folder in one: s3://, gs://, abfs://; s3a:// and s3n://, as Spark's users write them, mean the same as
s3://. Credentials come from the environment of the process that connects (AWS_ACCESS_KEY_ID and so on) or from the
machine's role, never from options: those are seen in process lists and logs. Names of options are those of the
environment, in small letters and without the vendor: endpoint, region.

`ObjectStore` creates an object with a conditional PUT. A reply that is lost leaves open whether it was carried out, so
whoever is told that there is one of this name looks whether it is its own.
"""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
SECRET = re.compile(r"secret|key|token|password|credential|sas", re.IGNORECASE)
URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.IGNORECASE | re.DOTALL)
RETRY_S = 30
CREATE_ATTEMPTS = 6
CREATE_PAUSE_S = 0.05


class BadStore(ValueError):
    """No such store, or an option that it must not have; the text says what to do."""


class StoreFailed(OSError):
    """The store did not answer, or refused; what it was asked for may have happened."""


@dataclass(slots=True)
class Bucket:
    """Can be pickled: executors connect by themselves."""

    url: str
    options: dict[str, str] = field(default_factory=dict)

    def connect(self) -> Any:
        """An obstore store of the folder."""
        from obstore.store import from_url

        settings: Any = {"client_options": {"allow_http": True}} if self._is_plain else {}
        config: Any = self._named()
        return from_url(self.url, config=config, retry_config=_retries(), **settings)

    def storage_options(self) -> dict[str, str]:
        """As deltalake takes them, which looks for the rest in the environment."""
        chosen = {f"{self._vendor}_{name}".upper(): value for name, value in self.options.items()}
        if "endpoint" in self.options and self._vendor == "aws":
            chosen["AWS_ENDPOINT_URL"] = chosen.pop("AWS_ENDPOINT")
        return chosen | ({"AWS_ALLOW_HTTP": "true"} if self._is_plain else {})

    def iceberg_properties(self) -> dict[str, str]:
        """As pyiceberg takes them, where the configuration of the catalog does not say otherwise."""
        found = {"s3.endpoint": self._endpoint(), "s3.region": self.options.get("region", os.environ.get("AWS_REGION"))}
        return {name: value for name, value in found.items() if value} if self._vendor == "aws" else {}

    def uri(self, path: str) -> str:
        return f"{self.url}/{path}"

    @property
    def _vendor(self) -> str:
        return {"s3": "aws", "gs": "google"}.get(self.url.partition("://")[0], "azure")

    @property
    def _is_plain(self) -> bool:
        return (self._endpoint() or "").startswith("http://")

    def _endpoint(self) -> str | None:
        return (
            self.options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        )

    def _named(self) -> dict[str, str]:
        return {f"{self._vendor}_{name}": value for name, value in self.options.items()}


def bucket_of(path: str, options: Mapping[str, str]) -> Bucket | None:
    """None for a path of a local or mounted file system; BadStore for what is neither."""
    match = URL.fullmatch(path)
    if match is None or match[1].lower() == "file":
        return None
    scheme, rest = match[1].lower(), match[2].strip("/")
    if scheme not in SCHEMES:
        raise BadStore(
            f"{path}: tables are written to local or mounted paths, s3://, gs:// and abfs://, and not to {scheme}://"
            + ("; mount it, for example with its NFS gateway" if scheme == "hdfs" else "")
        )
    if "/" not in rest or any(ord(character) < 32 for character in rest) or re.search(r"[#?]|//|(^|/)\.\.?(/|$)", rest):
        raise BadStore(f"{path!r} is not BUCKET/FOLDER of an object store; write for example s3://lake/orders")
    for name in options:
        if SECRET.search(name):
            raise BadStore(
                f"store option {name}: credentials are not options, because process lists and logs show those; set"
                " them in the environment, for example AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
    return Bucket(f"{SCHEMES[scheme]}://{rest}", dict(options))


class ObjectStore:
    """A `Store` of small objects below a folder of a bucket."""

    def __init__(self, bucket: Bucket, folder: str) -> None:
        self._store = bucket.connect()
        self._folder = folder

    def create(self, name: str, content: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        for attempt in range(CREATE_ATTEMPTS):
            try:
                obstore.put(self._store, self._path(name), content, mode="create", use_multipart=False)
                return True
            except (AlreadyExistsError, PreconditionError) as error:
                # Contents tell whose it is: an earlier try may have come through, and only its reply was lost. S3 also
                # answers 409 to one of two requests at the same moment, and then there may be none: ask again.
                found, reason = self.read(name), _reason(error)
            except (BaseError, OSError) as error:
                found, reason = self.read(name), _reason(error)
                if found is None:
                    raise StoreFailed(f"could not create {name}: {reason}") from None
            if found is not None:
                return found == content
            time.sleep(CREATE_PAUSE_S * 2**attempt)
        raise StoreFailed(f"could not create {name}: {reason}")

    def replace(self, name: str, content: bytes) -> None:
        import obstore

        with _failures(f"could not write {name}"):
            obstore.put(self._store, self._path(name), content, use_multipart=False)

    def read(self, name: str) -> bytes | None:
        import obstore
        from obstore.exceptions import NotFoundError

        try:
            with _failures(f"could not read {name}"):
                return bytes(obstore.get(self._store, self._path(name)).bytes())
        except (NotFoundError, FileNotFoundError):
            return None

    def names(self, folder: str) -> list[str]:
        import obstore

        with _failures(f"could not list {folder}"):
            found = obstore.list_with_delimiter(self._store, self._path(folder))
            return sorted(one["path"].rpartition("/")[2] for one in found["objects"])

    def folders(self, folder: str = "") -> list[str]:
        import obstore

        with _failures(f"could not list {folder}"):
            found = obstore.list_with_delimiter(self._store, self._path(folder).rstrip("/"))
            return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])

    def remove(self, name: str) -> None:
        import obstore
        from obstore.exceptions import NotFoundError

        try:
            with _failures(f"could not remove {name}"):
                obstore.delete(self._store, self._path(name))
        except (NotFoundError, FileNotFoundError):
            pass

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


class _failures:  # noqa: N801 - used as a statement
    """obstore's errors as ours, but for what is not there."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        from obstore.exceptions import BaseError, NotFoundError

        if isinstance(error, BaseError) and not isinstance(error, NotFoundError | FileNotFoundError):
            raise StoreFailed(f"{self._what}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """The first line: further ones repeat the request, with its address."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _retries() -> Any:
    from datetime import timedelta

    return {"max_retries": 8, "retry_timeout": timedelta(seconds=RETRY_S)}
