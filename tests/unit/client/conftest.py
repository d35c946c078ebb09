"""A broker to talk to: the shared Skidway of the session, or any other that SKIDWAY_TEST_BOOTSTRAP names."""

import os
import secrets

import pytest


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("SKIDWAY_TEST_BOOTSTRAP")
    return given or request.getfixturevalue("broker").bootstrap


@pytest.fixture
def name() -> str:
    """A topic name nobody has used."""
    return f"test-{secrets.token_hex(6)}"
