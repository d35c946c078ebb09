"""AWS Signature Version 4: who sent a request, proven by a key that both sides know.

A signature is in the header Authorization, or in the query of a presigned URL. It covers the method, the path, the
query, the headers that it names and the body. `identify` is the hook that the rest of the door asks. Without keys every
key passes, and so does a request without a signature: that is for the loopback address alone. Then a key id of twelve
digits is the account. The region is that of the signature's scope.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote, unquote_to_bytes

import msgspec

from skidway.gateways.http.dates import DAY_S, days_from_civil
from skidway.gateways.http.head import Head
from skidway.gateways.queues.names import DEFAULT_ACCOUNT, DEFAULT_REGION
from skidway.gateways.sqs.bounds import ACCOUNT, REGION
from skidway.gateways.sqs.errors import access_denied, bad_signature, expired, no_signature, unknown_key

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sqs"
ENDING = "aws4_request"
SKEW_S_MAX = 300
EXPIRES_S_MAX = 604_800
UNSIGNED = "UNSIGNED-PAYLOAD"
KEYS_CACHED_MAX = 1_000
_TIME = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z")
_SECONDS = re.compile(r"[0-9]{1,9}")
_BLANKS = re.compile(r"[ \t]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Identity(msgspec.Struct, frozen=True):
    """Who asks, and about which region."""

    key_id: str
    account: str = DEFAULT_ACCOUNT
    region: str = DEFAULT_REGION


class Scope(msgspec.Struct, frozen=True):
    key_id: str
    day: str
    region: str
    service: str

    @property
    def text(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/{ENDING}"


class Claim(msgspec.Struct, frozen=True):
    """What a request says of its signature."""

    scope: Scope
    signed_headers: list[str]
    signature: str
    time: str
    expires_s: int | None = None
    """Of a presigned URL."""


class Keys:
    """Secrets by key id, and the signing keys that were derived of them."""

    __slots__ = ("_derived", "_secrets")

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = dict(secrets)
        self._derived: dict[Scope, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def signing_key(self, scope: Scope) -> bytes:
        """Raises SqsError."""
        key = self._derived.get(scope)
        if key is None:
            secret = self._secrets.get(scope.key_id)
            if secret is None:
                raise unknown_key()
            key = b"AWS4" + secret.encode()
            for each in (scope.day, scope.region, scope.service, ENDING):
                key = _sign(key, each)
            if len(self._derived) >= KEYS_CACHED_MAX:
                self._derived.clear()
            self._derived[scope] = key
        return key


def identify(head: Head, body: bytes | memoryview, wall_ms: int, keys: Keys, *, is_open: bool) -> Identity:
    """`is_open`: without keys anybody may come in. Raises SqsError."""
    claim = read_claim(head)
    if keys:
        if claim is None:
            raise no_signature()
        verify(claim, head, body, wall_ms, keys)
    elif not is_open:
        raise access_denied(
            "this broker has no keys for SQS: set them (sqs_keys), or reach it by its loopback address, where it needs "
            "none"
        )
    else:
        _check_no_web_page(head)
    if claim is None:
        return Identity("")
    scope = claim.scope
    if not REGION.fullmatch(scope.region):
        raise bad_signature("Credential should be scoped to a valid region.")
    account = scope.key_id if ACCOUNT.fullmatch(scope.key_id) else DEFAULT_ACCOUNT
    return Identity(scope.key_id, account, scope.region)


def _check_no_web_page(head: Head) -> None:
    """A page of any site can have a browser send a form here; a browser says so."""
    headers = head.headers
    if b"authorization" in headers or b"x-amz-target" in headers:
        return  # a browser asks before it sends one of these
    if b"origin" in headers or headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        raise access_denied("a request of a web page must be signed in the header Authorization")


# --- what a request claims ---


def read_claim(head: Head) -> Claim | None:
    """Raises SqsError."""
    given = head.headers.get(b"authorization")
    if given is not None:
        return _read_header(head, given.decode("latin-1"))
    if b"X-Amz-Credential" in head.target:
        return _read_query(head)
    return None


def _read_header(head: Head, given: str) -> Claim:
    algorithm, _, rest = given.partition(" ")
    if algorithm != ALGORITHM:
        raise bad_signature(f"The signature must be {ALGORITHM}.")
    fields = dict(_pair(each) for each in rest.split(","))
    try:
        scope = _read_scope(fields["Credential"])
        signed_headers, signature = fields["SignedHeaders"].split(";"), fields["Signature"]
    except KeyError as error:
        raise bad_signature(f"Authorization header requires {error.args[0]!r} parameter.") from None
    time = head.headers.get(b"x-amz-date", b"").decode("latin-1")
    return Claim(scope, signed_headers, signature, time)


def _read_query(head: Head) -> Claim:
    fields = {name: unquote_to_bytes(value).decode("latin-1") for name, value in _query(head)}
    try:
        if fields["X-Amz-Algorithm"] != ALGORITHM:
            raise bad_signature(f"The signature must be {ALGORITHM}.")
        expires = fields["X-Amz-Expires"]
        if not _SECONDS.fullmatch(expires) or int(expires) > EXPIRES_S_MAX:
            raise bad_signature(f"X-Amz-Expires must be at most {EXPIRES_S_MAX} seconds.")
        return Claim(
            _read_scope(fields["X-Amz-Credential"]),
            fields["X-Amz-SignedHeaders"].split(";"),
            fields["X-Amz-Signature"],
            fields["X-Amz-Date"],
            int(expires),
        )
    except KeyError as error:
        raise bad_signature(f"The query of a presigned request requires {error.args[0]!r}.") from None


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.strip().partition("=")
    return name, value


def _read_scope(text: str) -> Scope:
    parts = text.rsplit("/", 4)
    if len(parts) != 5 or parts[4] != ENDING:
        raise bad_signature("Credential must have the form <key id>/<day>/<region>/sqs/aws4_request.")
    return Scope(*parts[:4])


# --- whether it is true ---


def verify(claim: Claim, head: Head, body: bytes | memoryview, wall_ms: int, keys: Keys) -> None:
    """Raises SqsError."""
    scope = claim.scope
    if scope.service != SERVICE:
        raise bad_signature(f"Credential should be scoped to correct service: '{SERVICE}'.")
    key = keys.signing_key(scope)
    _check_time(claim, wall_ms // 1000)
    if "host" not in claim.signed_headers:
        raise bad_signature("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    canonical = canonical_request(claim, head, body)
    text = "\n".join((ALGORITHM, claim.time, scope.text, sha256(canonical).hexdigest()))
    if not hmac.compare_digest(_sign(key, text).hex().encode(), claim.signature.encode("utf-8", "replace")):
        raise bad_signature(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method."
        )


def _check_time(claim: Claim, now_s: int) -> None:
    found = _TIME.fullmatch(claim.time)
    if found is None or claim.time[:8] != claim.scope.day:
        raise bad_signature("The date of the request must be X-Amz-Date, on the day of the credential's scope.")
    year, month, day, hour, minute, second = map(int, found.groups())
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise bad_signature("X-Amz-Date is not a date.")
    signed_s = days_from_civil(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second
    if signed_s > now_s + SKEW_S_MAX:
        raise bad_signature(f"Signature not yet current: {claim.time} is in the future.")
    valid_s = SKEW_S_MAX if claim.expires_s is None else claim.expires_s
    if now_s > signed_s + valid_s:
        text = f"Signature expired: {claim.time} was valid for {valid_s} seconds."
        raise bad_signature(text) if claim.expires_s is None else expired(text)


def canonical_request(claim: Claim, head: Head, body: bytes | memoryview) -> bytes:
    """What both sides sign. Raises SqsError."""
    headers = []
    for name in claim.signed_headers:
        value = head.headers.get(name.encode("latin-1", "replace"))
        if value is None:
            raise bad_signature(f"The signed header {name[:100]!r} is not in the request.")
        headers.append(f"{name}:{_BLANKS.sub(' ', value.decode('latin-1').strip())}\n")
    path = head.target.partition(b"?")[0].decode("latin-1")
    lines = (
        head.method,
        quote(path, safe="/-_.~", encoding="latin-1"),
        _canonical_query(head),
        "".join(headers),
        ";".join(claim.signed_headers),
        _payload(head, body),
    )
    return "\n".join(lines).encode("latin-1", "replace")


def _canonical_query(head: Head) -> str:
    pairs = [
        (quote(unquote_to_bytes(name), safe="-_.~"), quote(unquote_to_bytes(value), safe="-_.~"))
        for name, value in _query(head)
        if name != "X-Amz-Signature"
    ]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _query(head: Head) -> list[tuple[str, str]]:
    """Names and values as they were sent."""
    query = head.target.partition(b"?")[2].decode("latin-1")
    return [(name, value) for name, _, value in (pair.partition("=") for pair in query.split("&") if pair)]


def _payload(head: Head, body: bytes | memoryview) -> str:
    given = head.headers.get(b"x-amz-content-sha256", b"").decode("latin-1")
    if given == UNSIGNED:
        return given
    own = sha256(body).hexdigest()
    if given and _SHA256.fullmatch(given) and given != own:
        raise bad_signature("The body is not the one that x-amz-content-sha256 was made of.")
    return given or own


def _sign(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode("utf-8", "replace"), "sha256")
