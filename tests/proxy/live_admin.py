"""The admin address on a real socket, beside the test: in a thread with a loop of its own, for clients that block."""

import asyncio
import http.client
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from limiter.policies import Policies
from proxy.admin.listener import Connections, Listener
from proxy.admin.refusals import RefusalLog
from proxy.block_rules import Rule
from proxy.blocking.blocklist import Blocklist
from proxy.counters import Counters
from proxy.policies.kept_blocks import KeptBlocks
from proxy.policies.keys import PolicyKey, PolicyKind
from proxy.policies.policy_set import PolicySet, in_force
from proxy.policies.service import Around, PolicyService
from tests.manual_clock import ManualClock
from tests.proxy.admin_client import Admin
from tests.proxy.endpoints import web_at

T = TypeVar("T")
UNHURRIED = {"rate": "1000000/s", "burst": 1_000_000}
"""The clock of the bounds stands, so this is how many requests a test has."""


@dataclass(frozen=True)
class InForce:
    """Everything that requests can change, but for what is kept of it."""

    limits: PolicySet
    dynamic: dict[str, str]
    blocks: list[Rule]


@dataclass(frozen=True)
class State:
    """The same, with what is kept and who changed it."""

    in_force: InForce
    kept: dict[PolicyKey, str]
    changes: int


@dataclass(frozen=True)
class Answer:
    status: int
    content_type: str
    body: bytes


class _Unchecked(http.client.HTTPConnection):
    """Sends whatever a test wants to be sent."""

    def _validate_path(self, url: str) -> None: ...

    def _encode_request(self, request: str) -> bytes:
        return request.encode("latin-1")


class LiveAdmin:
    """An `Admin` that is served.

    Args:
        store: Where its policies are kept.
        loop: Its loop, of its own if there is none.
        settings: Of the configuration.
    """

    def __init__(self, store: Path, loop: asyncio.AbstractEventLoop | None = None, **settings: Any) -> None:
        self.settings = settings
        self._store_path = store
        self._loop = loop or asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="admin address")
        self._thread.start()
        self.address = self.run(self._start())
        self.url = f"http://{self.address}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """One request, with not a byte changed on its way."""
        host, _, port = self.address.rpartition(":")
        connection = _Unchecked(host, int(port), timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers.get_content_type(), answer.read())
        finally:
            connection.close()

    def state(self) -> State:
        """What is in force and kept now."""

        async def look() -> State:
            kept = dict(self.admin.store.policies())
            return State(_in_force(self.admin.service, self.admin.engine.blocklist), kept, self._changes())

        return self.run(look())

    def state_after_restart(self) -> InForce:
        """What another process would make of the store."""
        return self.run(self._read_again())

    def close(self) -> InForce:
        """End it; gives what the next process finds."""
        next_in_force = self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        return next_in_force

    async def _start(self) -> str:
        self.admin = Admin(**self.settings, policies={"store": self._store_path})
        refused = RefusalLog(Counter(), ManualClock())
        self._listener = Listener(self.admin.app, Connections(100, 30, refused, self.admin.engine.slices))
        return await self._listener.start(web_at("127.0.0.1:0"))

    async def _stop(self) -> InForce:
        await self._listener.stop()
        await self.admin.client.close()
        self.admin.store.close()
        next_one = Admin(**self.settings, policies={"store": self._store_path})
        try:
            return _in_force(next_one.service, next_one.engine.blocklist)
        finally:
            await next_one.client.close()
            next_one.store.close()

    async def _read_again(self) -> InForce:
        blocklist = Blocklist([block.rule() for block in self.admin.engine.config.blocks], Counters(), ())
        around = Around(lambda: (0, 0), lambda _changes, _now: None, handlers={PolicyKind.BLOCK: KeptBlocks(blocklist)})
        service = PolicyService(Policies(), self.admin.service.file, self.admin.store, around)
        return _in_force(service, blocklist)

    def _changes(self) -> int:
        return len(self.admin.store.audited(1_000_000))


def _in_force(service: PolicyService, blocklist: Blocklist) -> InForce:
    """Those of the file are as old as the process."""
    rules = [replace(rule, since_ns=0) if rule.origin == "file" else rule for rule in blocklist.rules.all()]
    return InForce(in_force(service), dict(service.dynamic), rules)


@contextmanager
def live_admin(store: Path, loop: asyncio.AbstractEventLoop | None = None, **settings: Any) -> Iterator[LiveAdmin]:
    """One, ended at the end; what a next process would find is what was in force."""
    live = LiveAdmin(store, loop, **settings)
    try:
        yield live
        state = live.state()
    finally:
        next_in_force = live.close()
    assert next_in_force == state.in_force
