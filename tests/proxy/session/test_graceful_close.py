"""The order in which a session ends after its client has left."""

import asyncio
from collections.abc import Callable
from typing import cast

from proxy.runtime import Tasks
from proxy.session.events import CloseReason, SessionEnd
from proxy.session.session import GracefulClose
from proxy.session.streams import Streams
from tests.waiting import PATIENCE_S

CLOSED = SessionEnd(CloseReason.CLIENT_CLOSED)


class Scene:
    """Streams, a broker, and what was done."""

    def __init__(self, patience: float = 60) -> None:
        self.done: list[object] = []
        self.tasks = Tasks()
        self.departing = GracefulClose(cast("Streams", self), self.write_eof, self.tasks, patience, self.done.append)

    def close_all(self, then: Callable[[], None]) -> None:
        self.done.append("streams closed")
        then()

    def write_eof(self) -> None:
        self.done.append("broker told")


async def test_streams_close_before_the_broker_is_told() -> None:
    scene = Scene()
    scene.departing.half_closed()
    assert scene.done == ["streams closed", "broker told"]
    assert scene.departing.end == CLOSED
    scene.tasks.cancel()


async def test_the_session_ends_when_no_answer_comes() -> None:
    scene = Scene(patience=0)
    scene.departing.half_closed()
    async with asyncio.timeout(PATIENCE_S):
        while CLOSED not in scene.done:  # noqa: ASYNC110 - the loop's own time
            await asyncio.sleep(0)
