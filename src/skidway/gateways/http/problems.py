"""What is wrong with a request, as `application/problem+json` (RFC 9457) tells it.

Beside the members of the RFC an answer has `code`, a word that does not change, and `retryable`: whether the very same
request may succeed later.
"""

from __future__ import annotations

import msgspec

CONTENT_TYPE = b"application/problem+json"

TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    426: "Upgrade Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}


class ProblemDetails(msgspec.Struct):
    """The body of every answer that is not a success."""

    title: str
    status: int
    code: str
    detail: str
    retryable: bool


class Problem(Exception):
    """This request is refused; the connection goes on, unless it is a `Fatal` one."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        retryable: bool = False,
        retry_after_s: int | None = None,
        headers: bytes = b"",
    ) -> None:
        """`headers` are more lines of the answer, each with its end."""
        super().__init__(detail)
        assert status in TITLES
        self.status = status
        self.code = code
        self.detail = detail
        self.retryable = retryable
        self.headers = headers if retry_after_s is None else headers + b"retry-after: %d\r\n" % retry_after_s

    def body(self) -> bytes:
        return msgspec.json.encode(
            ProblemDetails(TITLES[self.status], self.status, self.code, self.detail, self.retryable)
        )


class Fatal(Problem):
    """Nobody knows where the next request would begin: the connection ends with the answer."""


def unavailable(code: str, detail: str, retry_after_s: int = 1) -> Problem:
    return Problem(503, code, detail, retryable=True, retry_after_s=retry_after_s)
