"""One worker's place: the process in it, and the next one when that ends."""

import asyncio
import contextlib
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping

import structlog

from protocol.endpoint import Endpoint
from proxy.config.model import Config
from proxy.near_engine import NearEngine
from proxy.runtime import Tasks
from proxy.workers.desk import Desk
from proxy.workers.letters import Hello, Stop

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
"""Before a worker that ended is replaced: each time twice as long, until one has lived for as long as that."""
_GRACE_S = 2.0
"""So long a worker may take to end that is not connected any more."""
IDS_APART = 1_000_000
"""What one process may have numbered of connections that nobody has heard of yet, as it ended too soon."""
OF_SUPERVISOR = frozenset(
    {
        *("scheduling", "admin", "metrics", "proxy_id", "access_log", "limits"),
        *("admission", "policies", "admin_access", "admin_forward", "blocks"),
    }
)
"""What a worker is not told of the configuration, as it is the supervisor that does it; but for the log's interval."""


class Post:
    """Keeps one worker running.

    Args:
        index: Which, from 0.
        engine: The limits and counters of all.
        new_desk: Makes the other end of its letters.

    Attributes:
        desk: That of the worker that runs.
        up: Set when it listens, or has ended before.
        why: Why there is none, for people; empty as long as none has ended.
    """

    def __init__(self, index: int, engine: NearEngine, new_desk: Callable[["Post"], Desk]) -> None:
        self.index = index
        self.desk: Desk | None = None
        self.up = asyncio.Event()
        self.why = ""
        self._engine = engine
        self._new_desk = new_desk
        self._tasks = Tasks()
        self._listen = engine.config.listen
        self._process: Process | None = None
        self._gone = asyncio.Event()
        self._killing: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self._is_ending = False
        self._next_id = index + 1

    @property
    def is_up(self) -> bool:
        """Whether there is a worker that listens."""
        return self.desk is not None and self.desk.is_listening

    async def start(self, listen: tuple[Endpoint, ...]) -> None:
        """Have a worker listen at these endpoints from now on."""
        self._listen = listen
        self._tasks.start(self._keep(), f"worker {self.index}")

    async def stop(self, patience_s: float) -> None:
        """End the worker, after what its sessions still have to send."""
        self._is_ending = True
        process = self._process
        if self.desk is not None:
            self.desk.channel.send([Stop()])
        if process is None:
            self._tasks.cancel()
            return
        try:
            await asyncio.wait_for(self._ended.wait(), patience_s + _GRACE_S)
        except TimeoutError:
            self._kill()
            await self._ended.wait()

    def cut_off(self) -> None:
        """Nothing more is heard of the worker: it ends by itself, or else is ended."""
        self._gone.set()
        self._killing = asyncio.get_running_loop().call_later(_GRACE_S, self._kill)

    def silent(self) -> None:
        """The worker hangs; what its clients and others wait for, only another one can do."""
        structlog.get_logger().error("worker does not answer", worker=self.index)
        self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _keep(self) -> None:
        pause, log = 0.0, structlog.get_logger()
        while not self._is_ending:
            began = time.monotonic()
            how = await self._employ()
            if self._is_ending:
                break
            self.why = _in_words(how)
            self.up.set()
            self._engine.counters.workers_lost += 1
            pause = next_pause(pause, time.monotonic() - began)
            log.error("worker ended", worker=self.index, **how, next_in_s=pause)
            await asyncio.sleep(pause)
        self._ended.set()

    async def _employ(self) -> dict[str, object]:
        """Have one worker from its start to its end. Returns how it ended."""
        try:
            process = self._process = await self._start_process()
        except OSError as error:  # the system has no room for another process or connection: later it may
            return {"error": repr(error)}
        code = await process.wait()
        await self._gone.wait()
        self._process = None
        self._let_go()
        return {"code": code}

    def _let_go(self) -> None:
        """The worker has ended, and all that it had said is heard."""
        if self._killing is not None:
            self._killing.cancel()
            self._killing = None
        desk, self.desk = self.desk, None
        if desk is not None:
            self._next_id = self._following(desk.last_id)
            self._engine.sessions.discard(desk)
            desk.write_off()

    async def _start_process(self) -> Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
            with theirs:
                # -P: what lies in the working directory must not be taken for our packages.
                command = (sys.executable, "-P", "-m", "proxy.workers", str(theirs.fileno()))
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
                )
            await self._greet(ours)
        except BaseException:  # also when the proxy ends meanwhile
            ours.close()
            raise
        return process

    async def _greet(self, ours: socket.socket) -> None:
        self._gone.clear()
        desk = self._new_desk(self)
        await asyncio.get_running_loop().create_unix_connection(lambda: desk.channel, sock=ours)
        self.desk = desk
        config = self._engine.config.model_copy(update={"listen": self._listen})
        desk.channel.send([Hello(told(config), self.index, self._next_id, config.workers), desk.bounds(), *desk.kept()])
        desk.expect()
        self._engine.sessions.add(desk)
        for rule in self._engine.blocklist.rules.all():
            desk.rule_added(rule)
        self._tasks.start(self._watch(desk), f"worker {self.index} comes up")

    async def _watch(self, desk: Desk) -> None:
        await desk.ready.wait()
        self.up.set()

    def _following(self, last_id: int) -> int:
        """The first number for the next worker here; the others have the numbers between."""
        if last_id == 0:
            return self._next_id
        return last_id + IDS_APART * self._engine.config.workers


def told(config: Config) -> str:
    """What a worker is told of a configuration, as JSON."""
    names = Config.model_fields.keys() - OF_SUPERVISOR
    return config.model_dump_json(include={"access_log": {"interval"}, **dict.fromkeys(names, True)})


def next_pause(pause: float, lived_s: float) -> float:
    """Seconds before the next worker, where the last one was waited for `pause` (0: it was the first)."""
    if pause == 0 or lived_s > LONGEST_PAUSE_S:
        return FIRST_PAUSE_S
    return min(2 * pause, LONGEST_PAUSE_S)


def _in_words(how: Mapping[str, object]) -> str:
    if "error" in how:
        return f"no process can be had for it: {how['error']}"
    return f"it ended with code {how['code']}; the lines before this one say why"
