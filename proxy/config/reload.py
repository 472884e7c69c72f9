"""Reads the configuration anew while the proxy runs: all that can change at once, or nothing.

What can change: `limits`, `blocks`, the subscribe rate of `admission`, and the files that `admin_access` names. Of all
else that is another than at the start, it is said that it takes a restart.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from proxy.collector import paused_collector
from proxy.config.limits import Limits
from proxy.config.model import Config, ConfigError
from proxy.observe.counters import Counters

LIVE = frozenset({"limits", "blocks"})
"""Keys whose values change without a restart."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the last try.

    Args:
        at_ns: When, nanoseconds since 1970.
        cause: Why it was read anew.
        problems: What is wrong with it, each with file, key, value and remedy. Empty: it is in force.
        needs_restart: Keys whose values differ from those that the process started with.
    """

    at_ns: int
    cause: str
    problems: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = field(default=())


class Reloader:
    """Keeps the configuration that is in force, but for its limits: there may be 100,000 of them, and others keep them.

    Args:
        config: The one that the process started with.
        read: Reads the one that is to be in force; runs in a thread. Raises ConfigError.
        check: Tries what else may be wrong, and takes what it is then the only one to know. Raises ConfigError.
        prepare: Gets it ready, in that thread, too. What it returns puts it in force, cannot fail, and says whether
            that changes anything.
        counters: Told how it went.
    """

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        check: Callable[[], None],
        prepare: Callable[[Config], Callable[[], bool]],
        counters: Counters,
    ) -> None:
        self.config = config
        self.last: Outcome | None = None
        self._at_start = config
        self._read, self._check, self._prepare = read, check, prepare
        self._counters = counters
        self._turn = asyncio.Lock()

    async def reload(self, cause: str) -> Outcome:
        """Read it anew; a broken one changes nothing, and says so."""
        async with self._turn:
            try:
                config, take = await asyncio.to_thread(self._read_and_prepare)
                self._check()
            except ConfigError as error:
                self.last = Outcome(time.time_ns(), cause, tuple(error.problems), self._other_keys(self.config))
                self._tell("refused")
                return self.last
            has_changed = take()
            self.config = config
            self.last = Outcome(time.time_ns(), cause, (), self._other_keys(config))
            self._tell("taken" if has_changed else "unchanged")
            return self.last

    def _read_and_prepare(self) -> tuple[Config, Callable[[], bool]]:
        with paused_collector():
            config = self._read()
            take = self._prepare(config)
            config = config.model_copy(
                update={"limits": Limits()}
            )  # the others go before they are searched for garbage
            return config, take

    def _other_keys(self, config: Config) -> tuple[str, ...]:
        keys = sorted(set(type(config).model_fields) - LIVE)
        now, then = _without_live(config), _without_live(self._at_start)
        return tuple(key for key in keys if getattr(now, key) != getattr(then, key))

    def _tell(self, how: str) -> None:
        assert self.last is not None
        self._counters.reloads[how] += 1
        log = structlog.get_logger()
        if self.last.problems:
            for problem in self.last.problems:
                log.error("configuration not reloaded", cause=self.last.cause, problem=problem)
        else:
            log.info("configuration reloaded", cause=self.last.cause, changed=how == "taken")
        for key in self.last.needs_restart:
            log.warning("a changed value takes a restart", key=key)


def _without_live(config: Config) -> Config:
    admission = config.admission.model_copy(update={"subscribe_rate_per_consumer": None})
    return config.model_copy(update={"admission": admission})
