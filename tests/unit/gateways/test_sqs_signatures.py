"""Signatures: those that botocore makes are accepted, and no change of a signed request is."""

import re
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from skidway.gateways.http.dates import days_from_civil, http_date
from skidway.gateways.http.head import Head
from skidway.gateways.sqs.errors import SqsError
from skidway.gateways.sqs.signatures import Identity, Keys, identify

ID, SECRET = "AKIAEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = Keys({ID: SECRET, "123456789012": "other"})
NONE = Keys({})


def now_ms() -> int:
    """botocore signs by the machine's clock."""
    return int(time.time() * 1000)


def signed(
    method: str = "POST",
    url: str = "http://localhost:8082/",
    body: bytes = b'{"a": 1}',
    key: tuple[str, str] = (ID, SECRET),
    region: str = "eu-west-1",
    token: str | None = None,
    headers: dict[str, str] | None = None,
    presigned_s: int = 0,
    service: str = "sqs",
) -> tuple[Head, bytes]:
    request = AWSRequest(method=method, url=url, data=body, headers=headers or {})
    credentials = Credentials(*key, token)
    auth: Any = SigV4QueryAuth(credentials, service, region, presigned_s) if presigned_s else None
    (auth or SigV4Auth(credentials, service, region)).add_auth(request)
    if presigned_s:
        body = b""  # it has moved into the query
    parts = urlsplit(request.url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    sent = {name.lower().encode(): str(value).encode() for name, value in request.headers.items()}
    return Head(method, target.encode(), 1, {b"host": parts.netloc.encode(), **sent}, 0, keep_alive=True), body


def check(given: tuple[Head, bytes], keys: Keys = KEYS, *, at_ms: int | None = None, is_open: bool = False) -> Identity:
    return identify(*given, now_ms() if at_ms is None else at_ms, keys, is_open=is_open)


def refused(given: tuple[Head, bytes], keys: Keys = KEYS, **more: Any) -> str:
    with pytest.raises(SqsError) as found:
        check(given, keys, **more)
    assert found.value.status == 403
    return found.value.code


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"token": "session"},
        {"url": "http://localhost:8082/000000000000/jobs.fifo"},
        {"url": "http://localhost:8082/000000000000/a%20b/"},
        {
            "method": "GET",
            "body": b"",
            "url": "http://h/000000000000/q?Version=2012-11-05&Action=ListQueues&B=&A=a%20b",
        },
        {"headers": {"X-Amz-Target": "AmazonSQS.ListQueues", "X-Other": "  a   b  "}},
        {"presigned_s": 60},
        {"presigned_s": 604_800, "method": "GET", "body": b"", "url": "http://h:1/1/q?Action=DeleteQueue&X=%2Fa~b"},
    ],
    ids=range(8),
)
def test_what_botocore_signs_is_accepted(request_: dict[str, Any]) -> None:
    assert check(signed(**request_)) == Identity(ID, "000000000000", "eu-west-1")
    assert refused(signed(**request_, key=(ID, "wrong"))) == "SignatureDoesNotMatch"


def test_a_key_of_twelve_digits_is_the_account() -> None:
    found = check(signed(key=("123456789012", "other"), region="us-east-1"))
    assert found == Identity("123456789012", "123456789012", "us-east-1")


def test_nothing_that_is_signed_may_change() -> None:
    head, body = signed()
    assert refused((head, body + b" ")) == "SignatureDoesNotMatch"
    for name, value in ((b"host", b"elsewhere"), (b"x-amz-date", head.headers[b"x-amz-date"][:-3] + b"99Z")):
        head, body = signed()
        head.headers[name] = value
        assert refused((head, body)) == "SignatureDoesNotMatch", name
    head, body = signed()
    head.target = b"/other"
    assert refused((head, body)) == "SignatureDoesNotMatch"
    head, body = signed(url="http://h/?A=1")
    head.target = b"/?A=2"
    assert refused((head, body)) == "SignatureDoesNotMatch"
    head, body = signed()
    head.method = "GET"
    assert refused((head, body)) == "SignatureDoesNotMatch"
    head, body = signed(token="session")
    del head.headers[b"x-amz-security-token"]
    assert refused((head, body)) == "SignatureDoesNotMatch"


def test_a_body_is_what_its_checksum_says() -> None:
    head, body = signed(headers={"X-Amz-Content-SHA256": "0" * 64})
    assert refused((head, body)) == "SignatureDoesNotMatch"
    assert check(signed(headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}))


def test_a_signature_has_its_time() -> None:
    given, now = signed(), now_ms()
    assert check(given, at_ms=now + 290_000)
    assert check(given, at_ms=now - 290_000)
    assert refused(given, at_ms=now + 310_000) == "SignatureDoesNotMatch"
    assert refused(given, at_ms=now - 310_000) == "SignatureDoesNotMatch"
    presigned = signed(presigned_s=3_600)
    assert check(presigned, at_ms=now + 3_500_000)
    assert refused(presigned, at_ms=now + 3_700_000) == "ExpiredToken"
    assert refused(signed(presigned_s=604_801)) == "SignatureDoesNotMatch"
    head, body = signed(presigned_s=3_600)
    for seconds in (b"-1", b"%B2", b"1_0", b"", b"9" * 5_000):
        head.target = re.sub(rb"(X-Amz-Expires=)[^&]*", rb"\g<1>" + seconds, head.target)
        assert refused((head, body)) == "SignatureDoesNotMatch", seconds


def test_unknown_keys_and_no_signature_are_refused_when_there_are_keys() -> None:
    assert refused(signed(key=("unknown", SECRET))) == "InvalidClientTokenId"
    assert refused((Head("POST", b"/", 1, {b"host": b"h"}, 0, keep_alive=True), b"")) == "MissingAuthenticationToken"
    assert refused(signed(service="s3")) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    "header",
    [
        b"Basic abc",
        b"AWS4-HMAC-SHA256",
        b"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=x",
        b"AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/r/sqs/aws4_request, SignedHeaders=host;\xff, Signature=\xff",
        b"AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/r/sqs/aws4_request, SignedHeaders=host",
    ],
    ids=range(5),
)
def test_headers_that_make_no_sense_are_refused(header: bytes) -> None:
    head = Head("POST", b"/", 1, {b"host": b"h", b"authorization": header}, 0, keep_alive=True)
    assert refused((head, b"")) == "SignatureDoesNotMatch"


def test_without_keys_every_key_passes_on_loopback_alone() -> None:
    assert check(signed(key=("x", "y")), NONE, is_open=True) == Identity("x", "000000000000", "eu-west-1")
    assert check(signed(key=("1" * 12, "y")), NONE, is_open=True).account == "1" * 12
    bare = Head("POST", b"/", 1, {b"host": b"h"}, 0, keep_alive=True), b""
    assert check(bare, NONE, is_open=True) == Identity("")
    assert refused(signed(key=("x", "y")), NONE) == "AccessDenied"
    assert refused(signed(region="A_B"), NONE, is_open=True) == "SignatureDoesNotMatch"


def test_a_web_page_cannot_have_a_browser_send_a_form() -> None:
    def form(**headers: str) -> tuple[Head, bytes]:
        lines = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        return Head("POST", b"/?Action=ListQueues", 1, {b"host": b"h", **lines}, 0, keep_alive=True), b""

    assert refused(form(origin="https://evil.example"), NONE, is_open=True) == "AccessDenied"
    assert refused(form(sec_fetch_site="cross-site"), NONE, is_open=True) == "AccessDenied"


def test_days_are_counted_as_dates_show_them() -> None:
    for days in (-1, 0, 58, 59, 60, 10_956, 11_016, 19_675, 20_775, 47_540):
        shown = http_date(days * 86_400_000).decode().split()
        months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        assert days_from_civil(int(shown[3]), months.index(shown[2]) + 1, int(shown[1])) == days
