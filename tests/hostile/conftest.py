"""One broker for all attacks of a module: what one attack leaves behind is there when the next begins."""

from collections.abc import Iterator

import pytest

from skidway.testing import Broker


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A module may set LIMITS for its broker."""
    limits = getattr(request.module, "LIMITS", {})
    with Broker(limits=limits, drain_ms=500) as broker:
        yield broker
