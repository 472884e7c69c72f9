"""A call of a file system that hangs."""

import asyncio
import threading

import pytest

from proxy.file_calls import FileCalls
from tests.waiting import PATIENCE_S


class HungCall:
    """Takes the place of a function that touches files; the patience of all who call one is over once it hangs.

    Attributes:
        calls: How often it was called, by threads that the process does not wait for.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.calls = 0
        self._hangs, self._answers = threading.Event(), threading.Event()
        monkeypatch.setattr(name, self._call)
        monkeypatch.setattr(FileCalls, "patience", lambda _, _seconds: self._until_it_hangs())

    def end(self) -> None:
        """Has it answer."""
        self._answers.set()

    def _call(self, *_: object) -> None:
        assert threading.current_thread().name == "files"
        assert threading.current_thread().daemon
        self.calls += 1
        self._hangs.set()
        assert self._answers.wait(PATIENCE_S)

    async def _until_it_hangs(self) -> None:
        while not self._hangs.is_set():  # noqa: ASYNC110 - a thread makes it true
            await asyncio.sleep(0)
