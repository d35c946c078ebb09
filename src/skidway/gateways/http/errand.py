"""Something the node does by itself, in the shape of a request: what doors may ask, it may ask too.

There is no connection behind it, so nobody can leave, and there is nothing to reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skidway.broker.api.caller import Caller
from skidway.gateways.http.call import HttpCall, Switched
from skidway.gateways.http.head import Head
from skidway.gateways.http.site import HttpSite

_NOBODY = Head("POST", b"/", 1, {}, 0, keep_alive=False)


class Errand:
    """In the place of a connection."""

    __slots__ = ("caller", "on_bug", "site")

    def __init__(self, site: HttpSite, caller: Caller, on_bug: Callable[[Exception], None]) -> None:
        """`caller` is who wanted it."""
        self.site = site
        self.caller = caller
        self.on_bug = on_bug

    def call(self) -> HttpCall:
        """For questions that begin now."""
        return HttpCall(self, _NOBODY, None, (), memoryview(b""), self.site.node.clock.monotonic_ms())

    def on_reply(self, call: HttpCall) -> None:
        raise AssertionError("an errand has nobody to answer")

    def on_part(self, data: bytes) -> None:
        raise AssertionError("an errand has nobody to answer")

    def when_sent(self, act: Callable[[Any], None]) -> None:
        raise AssertionError("an errand has nobody to answer")

    def ends_after(self, call: HttpCall) -> bool:
        return True

    def switch(self, call: HttpCall, session: Switched) -> None:
        raise AssertionError("an errand has nobody to answer")

    def has_left(self, *, waits: bool) -> bool:
        return False

    def on_activity(self, active: bool) -> None:
        raise AssertionError("an errand has no session")
