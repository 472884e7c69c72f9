"""What tests of sessions share."""

from collections.abc import Iterator

import pytest

from proxy.session.transport import Bytes
from tests.proxy.wired_peer import Wired


@pytest.fixture
def wired() -> Iterator[Wired]:
    wired = Wired()
    yield wired
    wired.close()


@pytest.fixture
def calls(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The transport's writes, each a call of the system."""
    made: list[bytes] = []
    write = wired.transport.write

    def noted(part: Bytes) -> None:
        made.append(bytes(part))
        write(part)

    monkeypatch.setattr(wired.transport, "write", noted)
    return made
