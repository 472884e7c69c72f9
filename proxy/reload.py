"""Reload the configuration while the proxy runs: all that can change, at once, or nothing.

A reload changes `limits`, `blocks`, the subscribe rate of `admission`, and takes the content of the files that
`admin_access`, `admin_forward`, `authentication`, `tls` and `broker_tls` name. All other keys whose values differ from
those at the start are reported as taking a restart.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from proxy.config.limits import Limits
from proxy.config.model import Config, ConfigError
from proxy.observe.counters import Counters
from proxy.policies.keys import Principal
from proxy.policies.store import StoreError
from proxy.runtime import let_go, paused_collector

LIVE = frozenset({"limits", "blocks"})
"""Keys whose values change without a restart."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the last reload.

    Args:
        at_ns: The time of the reload, nanoseconds since 1970.
        cause: The cause of the reload: `rest`, `SIGHUP`, `file changed`.
        who: The principal that asked for it by REST; None for the other causes.
        problems: Errors of the new configuration, each with file, key, value and remedy. Empty: it is in force.
        needs_restart: Keys whose values differ from those that the process started with.
    """

    at_ns: int
    cause: str
    who: Principal | None = None
    problems: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class _Ready:
    config: Config
    take: Callable[[Principal], Awaitable[bool]]
    take_beside: Callable[[], None]


class Reloader:
    """Reloads the configuration, and keeps the one in force, without its limits: there may be 100,000, kept elsewhere.

    Args:
        config: The configuration that the process started with.
        read: Reads the new configuration; runs in a thread. Raises ConfigError.
        read_beside: Reads the other files, in that thread, too. Returns the function that puts them in force, and
            cannot fail. Raises ConfigError.
        prepare: Prepares the new configuration, in that thread, too. Returns the function that puts it in force, called
            with the principal; that one returns whether anything changes. It raises StoreError if nothing could be
            changed.
        counters: Count reloads by result.
    """

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        read_beside: Callable[[], Callable[[], None]],
        prepare: Callable[[Config], Callable[[Principal], Awaitable[bool]]],
        counters: Counters,
    ) -> None:
        self.config = config
        self.last: Outcome | None = None
        self._at_start = config
        self._read, self._read_beside, self._prepare = read, read_beside, prepare
        self._counters = counters
        self._turn = asyncio.Lock()

    async def reload(self, cause: str, who: Principal | None = None) -> Outcome:
        """Reload the configuration; a broken one changes nothing. Every error is a problem of the outcome."""
        async with self._turn:
            try:
                has_changed = await self._take(who or Principal(cause, ""))
            except Exception as error:  # noqa: BLE001 - whoever asks, and who waits for the next, must be told
                self.last = Outcome(time.time_ns(), cause, who, _problems(error), self._other_keys(self.config))
                self._tell("refused")
            else:
                self.last = Outcome(time.time_ns(), cause, who, (), self._other_keys(self.config))
                self._tell("taken" if has_changed else "unchanged")
            return self.last

    async def _take(self, who: Principal) -> bool:
        ready = await asyncio.to_thread(self._read_and_prepare)
        has_changed = await ready.take(who)
        ready.take_beside()
        self.config = ready.config
        return has_changed

    def _read_and_prepare(self) -> _Ready:
        with paused_collector():
            config = self._read()
            take_beside, take = self._read_beside(), self._prepare(config)
            limits, config = config.limits, config.model_copy(update={"limits": Limits()})
            for section in vars(limits).values():
                let_go(section)  # before it is searched for garbage
            return _Ready(config, take, take_beside)

    def _other_keys(self, config: Config) -> tuple[str, ...]:
        keys = sorted(set(type(config).model_fields) - LIVE)
        now, then = _without_live(config), _without_live(self._at_start)
        return tuple(key for key in keys if getattr(now, key) != getattr(then, key))

    def _tell(self, how: str) -> None:
        assert self.last is not None
        self._counters.reloads[how] += 1
        log = structlog.get_logger().bind(cause=self.last.cause, **_asker(self.last.who))
        if self.last.problems:
            for problem in self.last.problems:
                log.error("configuration not reloaded", problem=problem)
        else:
            log.info("configuration reloaded", changed=how == "taken")
        for key in self.last.needs_restart:
            log.warning("a changed value needs a restart to take effect", key=key)


def _problems(error: Exception) -> tuple[str, ...]:
    if isinstance(error, ConfigError):
        return tuple(error.problems)
    if isinstance(error, StoreError):
        return (str(error),)
    structlog.get_logger().error("a reload ended as none should", exc_info=error)
    return (f"a mistake of Sluice, of which its log says more: {type(error).__name__}: {error}",)


def _asker(who: Principal | None) -> dict[str, str]:
    return {} if who is None else {"by": who.name, "address": who.address}


def _without_live(config: Config) -> Config:
    admission = config.admission.model_copy(update={"subscribe_rate_per_consumer": None})
    return config.model_copy(update={"admission": admission})
