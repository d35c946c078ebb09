"""What names a queue: its URL, its ARN, and the account and region they stand for."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote

from skidway.gateways.http.head import Head
from skidway.gateways.queues.names import QueueKey
from skidway.gateways.sqs.bounds import ACCOUNT, ANY_NAME, REGION
from skidway.gateways.sqs.errors import SqsError, invalid_value, no_such_queue

FIFO_SUFFIX = ".fifo"
_ARN_PARTS = 6
_SHOWN_MAX = 256


def arn_of(key: QueueKey) -> str:
    return f"arn:aws:sqs:{key.region}:{key.account}:{key.name}"


def url_of(key: QueueKey, base: str) -> str:
    return f"{base}/{key.account}/{key.name}"


def is_fifo(key: QueueKey) -> bool:
    return key.name.endswith(FIFO_SUFFIX)


def base_of(head: Head) -> str:
    """Scheme and host as the client knows us: queue URLs begin with it, and some clients connect to those."""
    host = head.headers.get(b"host", b"localhost").decode("latin-1")
    forwarded = head.headers.get(b"x-forwarded-proto", b"").partition(b",")[0].strip().lower()
    return f"{'https' if forwarded == b'https' else 'http'}://{host}"


def read_url(url: str, account: str, region: str) -> QueueKey:
    """Of a URL only the last two parts of its path count; a bare name is a queue of the caller. Raises SqsError."""
    return (_read_url if len(url) > _SHOWN_MAX else _read_known_url)(url, account, region)


def _read_url(url: str, account: str, region: str) -> QueueKey:
    path = url.partition("?")[0].rstrip("/")
    before, _, name = path.rpartition("/")
    owner = before.rpartition("/")[2] or account
    name = unquote(name)
    if not ANY_NAME.fullmatch(name):
        raise no_such_queue()
    if not ACCOUNT.fullmatch(owner):
        raise _bad_address(url)
    return QueueKey(name, owner, region)


_read_known_url = lru_cache(maxsize=1_000)(_read_url)


def read_arn(arn: str, parameter: str) -> QueueKey:
    """Raises SqsError."""
    parts = arn.split(":", _ARN_PARTS)
    if (
        len(parts) != _ARN_PARTS
        or parts[0] != "arn"
        or parts[2] != "sqs"
        or not REGION.fullmatch(parts[3])
        or not ACCOUNT.fullmatch(parts[4])
        or not ANY_NAME.fullmatch(parts[5])
    ):
        raise invalid_value(arn, parameter, "It is not the ARN of a queue.")
    return QueueKey(parts[5], parts[4], parts[3])


def _bad_address(url: str) -> SqsError:
    text = f"The address {url[:_SHOWN_MAX]} is not valid for this endpoint."
    return SqsError("InvalidAddress", "InvalidAddress", text, 404)
