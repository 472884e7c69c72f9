"""A relay on loopback that can keep back what goes one way: what a network that loses one direction does to TCP."""

import asyncio
import threading
from typing import Literal, Self
from urllib.parse import urlsplit

Direction = Literal["to broker", "from broker"]


class Relay:
    """Carries bytes between clients and one server, in a thread of its own, until its block ends.

    What is kept back comes late and whole when it is let go, as TCP sends again what was lost.

    Args:
        target: Where it leads, pulsar://HOST:PORT.
        marks: Only connections whose clients say one of these are ever kept back.
    """

    def __init__(self, target: str, *marks: bytes) -> None:
        self._target = urlsplit(target)
        self._marks = marks
        self._loop = asyncio.new_event_loop()
        self._open: dict[Direction, asyncio.Event] = {}
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """Where clients connect."""
        assert self._server is not None
        return "pulsar://{}:{}".format(*self._server.sockets[0].getsockname())

    def keep_back(self, direction: Direction) -> None:
        """Carry nothing more this way."""
        self._loop.call_soon_threadsafe(self._open[direction].clear)

    def let_go(self) -> None:
        """Carry everything again."""
        for event in self._open.values():
            self._loop.call_soon_threadsafe(event.set)

    async def _start(self) -> None:
        self._open = {"to broker": asyncio.Event(), "from broker": asyncio.Event()}
        for event in self._open.values():
            event.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await asyncio.open_connection(self._target.hostname, self._target.port)
            is_marked = asyncio.Event()
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, there, "to broker", is_marked))
                both.create_task(self._carry(back, writer, "from broker", is_marked))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            for stream in (writer, there):
                if stream is not None:
                    stream.transport.abort()
            self._tasks.discard(task)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction, is_marked: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            if direction == "to broker" and any(mark in data for mark in self._marks):
                is_marked.set()
            if is_marked.is_set():
                await self._open[direction].wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("one side has ended")
