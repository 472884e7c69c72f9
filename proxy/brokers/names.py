"""What the names of brokers resolve to."""

import asyncio
import socket
from dataclasses import dataclass
from typing import Final

from proxy.runtime import RESOLVERS

_OF_CLIENTS: Final = RESOLVERS // 4
"""Threads that may be busy with names of the clients' own choice; whatever these are, the others are left."""

Name = tuple[str, int, bool]
"""Host, port, and whether it was configured or named by a broker."""


class UnresolvedError(Exception):
    """A name leads nowhere; the text says why."""


@dataclass(eq=False, slots=True)
class _Question:
    """A name that is wanted.

    Args:
        task: Waits for a thread, then for the answer: addresses, or why there are none.
        waiting: How many want to know.
        is_asked: It has its thread, which nobody can call back.
    """

    task: "asyncio.Task[list[str] | str]"
    waiting: int = 0
    is_asked: bool = False


class Names:
    """Resolves names; who wants one that is being asked for gets the same answer.

    Few threads resolve names, and each name takes one for as long as its servers are silent. Were one asked for each of
    the thousands of clients that come at once when a broker does, most would have waited too long before their turn.
    """

    def __init__(self) -> None:
        self._wanted: dict[Name, _Question] = {}
        self._of_brokers = asyncio.Semaphore(RESOLVERS - _OF_CLIENTS)
        self._of_clients = asyncio.Semaphore(_OF_CLIENTS)

    def __len__(self) -> int:
        return len(self._wanted)

    async def addresses(self, host: str, port: int, *, is_named: bool) -> list[str]:
        """The addresses of a host, one at least.

        Args:
            host: Its name.
            port: Where it is to be reached.
            is_named: It was configured or named by a broker; else a client chose it.

        Raises:
            UnresolvedError: If there is none.
        """
        name = host, port, is_named
        question = self._wanted.get(name)
        if question is None:
            line = self._of_brokers if is_named else self._of_clients
            task = asyncio.get_running_loop().create_task(self._ask(name, line))
            question = self._wanted[name] = _Question(task)
        question.waiting += 1
        try:
            found = await asyncio.shield(question.task)  # who leaves takes the answer from nobody
        finally:
            question.waiting -= 1
            if not question.waiting and not question.is_asked:
                question.task.cancel()
                del self._wanted[name]
        if isinstance(found, str):
            raise UnresolvedError(found)
        return found

    async def _ask(self, name: Name, line: asyncio.Semaphore) -> list[str] | str:
        host, port, _ = name
        async with line:
            self._wanted[name].is_asked = True
            try:
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:  # the latter for names that DNS cannot have
                return str(error)
            finally:
                del self._wanted[name]
        return [str(address[0]) for *_, address in found]
