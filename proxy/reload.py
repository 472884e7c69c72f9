"""Reload the configuration and its files while the proxy runs.

A reload changes `limits`, `blocks`, `log` and the subscribe rate of `admission`, either all or none; of a folder, those
of the files that can be used. With them it changes the brokers, if the way to them stays the same. It also takes the
content of the files that `admin_access`, `admin_forward`, `authentication`, `tls` and `broker_tls` name. The files of
each key are taken independently, and before the configuration is read: one mistake keeps no certificate from being
renewed, and neither does a file system that does not answer. All other keys whose values differ from those at the start
are reported as needing a restart.

`changes_of` notices that files change: rewritten, replaced, or (Kubernetes) at the end of a symlink that is swapped.
The process sleeps until the kernel reports a change: polling would be most of an idle proxy's work. Where there is no
inotify, files are looked at each second.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

import structlog

from proxy.bulk import let_go
from proxy.config.limits import Limits
from proxy.config.model import Config, ConfigError, UsablePart
from proxy.counters import Counters
from proxy.degraded import Degraded
from proxy.file_calls import CONFIG_S, LOOK_S, READ_S, FileCalls, HungError
from proxy.files import FileReader, files_in
from proxy.observe.operator_log import warnings_heard
from proxy.policies.keys import Principal
from proxy.policies.store import StoreError
from proxy.runtime import Tasks, paused_collector

LIVE = frozenset({"limits", "blocks", "log", "metrics_limits"})
"""Keys whose values change without a restart."""
BROKERS = frozenset({"broker", "allowed_brokers", "allowed_broker_networks"})
"""Keys whose values do so if `Config.way_to_brokers` is that of the start."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the last reload.

    Args:
        at_ns: The time of the reload, nanoseconds since 1970.
        cause: The cause of the reload: `rest`, `SIGHUP`, `file changed`.
        who: The principal that asked for it by REST; None for the other causes.
        problems: Errors of the new configuration and then of its files, each with file, key, value and remedy, in the
            order of `sluice check`. The values that they name stay as before; all others are in force.
        warnings: Warnings of the files, a line each, and a line for each key of `needs_restart`.
        needs_restart: Keys whose values differ from those that the process started with.
        files_taken: Changed files of a folder that are in force, where others are not.
        files_kept: The others, each with the reason in a few words.
    """

    at_ns: int
    cause: str
    who: Principal | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    files_taken: tuple[str, ...] = ()
    files_kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Ready:
    config: Config
    take: Callable[[Principal], Awaitable[bool]]
    problems: tuple[str, ...] = ()
    part: UsablePart | None = None


_NEEDS_RESTART = "a changed value needs a restart to take effect"
CONFIG = "config"
"""The key under which reloads of the configuration itself are counted."""


class Reloader:
    """Reloads the configuration, and keeps the one in force without its limits, which the policy service has.

    Args:
        config: The configuration that the process started with.
        read: Reads the new configuration; runs in a thread. Raises ConfigError, perhaps with what is `usable` of it.
        files: Read the other files, also in a thread.
        prepare: Prepares the new configuration, in the thread that has read it. Returns the function that puts it in
            force, which is called with the principal and returns whether anything changes. It raises StoreError if
            nothing could be changed.
        counters: Count reloads by result.
        on_files: Called when files have been put in force.
        on_outcome: Called when a reload is over and `last` has its outcome.
        measure: Measures the part of this work that the loop does, as a context.

    Attributes:
        config: The latest configuration that was put in force.
        brokers_of: The configuration whose brokers are in force.
    """

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        files: Iterable[FileReader],
        prepare: Callable[[Config], Callable[[Principal], Awaitable[bool]]],
        counters: Counters,
        *,
        on_files: Callable[[], None] = lambda: None,
        on_outcome: Callable[[], None] = lambda: None,
        measure: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.config = self.brokers_of = config
        self.last: Outcome | None = None
        self._at_start = config
        self._read, self._prepare = read, prepare
        self._files = tuple(files)
        self._on_files, self._on_outcome = on_files, on_outcome
        self._measure = measure
        self._counters = counters
        self._calls = FileCalls(self._on_answer)
        self._hung: dict[str, None] = {}
        """The keys whose files did not answer at the last reload."""
        self._tasks = Tasks()
        self._turn = asyncio.Lock()
        for key in (CONFIG, *(reader.key for reader in self._files)):
            self._count(key, ())

    def degraded(self) -> Iterator[Degraded]:
        """Yield a state if part of the last reload was refused."""
        if self.last is not None and self.last.problems:
            kept = len(self.last.files_kept)  # their names may tell one tenant of another
            files = f"; {kept} of the configuration's files {'is' if kept == 1 else 'are'} not taken" if kept else ""
            files += f"; the file system of {', '.join(self._hung)} does not answer" if self._hung else ""
            yield Degraded(
                "reload_refused",
                f"the last reload ({self.last.cause}) had {len(self.last.problems)} problems; unless they say "
                f"otherwise, what they name is as before{files}",
                "mend the problems that the log and /sluice/status name, and reload again",
            )

    async def reload(self, cause: str, who: Principal | None = None) -> Outcome:
        """Reload; broken values and files stay as before, all others are taken. Errors are problems of the outcome."""
        async with self._turn:
            self._hung.clear()
            of_config: tuple[str, ...] = ()
            has_changed, part = False, None
            with warnings_heard() as warnings:
                of_files, of_their_own = await self._take_files()
                try:
                    has_changed, of_config, part = await self._take(who or Principal(cause, ""))
                except Exception as error:  # noqa: BLE001 - the caller gets it as a problem, and the next reload must not wait for ever
                    of_config = self._problems(CONFIG, error)
            warnings[:0] = of_their_own
            self._count(CONFIG, of_config)
            problems = (*of_config, *of_files)
            needs_restart = self._other_keys(self.config)
            warnings += [f"{key}: {_NEEDS_RESTART}" for key in needs_restart]
            files = (part.taken, part.kept) if part else ()
            self.last = Outcome(time.time_ns(), cause, who, problems, tuple(warnings), needs_restart, *files)
            self._log_outcome("refused" if problems else "taken" if has_changed else "unchanged")
            self._on_outcome()
            return self.last

    async def _take_files(self) -> tuple[tuple[str, ...], list[str]]:
        """Put the files of each key in force that can be used, as they come; return problems of others and warnings."""
        of_keys = await asyncio.gather(*(self._take_file(reader) for reader in self._files))
        with self._measure():
            self._on_files()
        problems = tuple(problem for of_key, _ in of_keys for problem in of_key)
        return problems, [warning for _, of_key in of_keys for warning in of_key]

    async def _take_file(self, reader: FileReader) -> tuple[tuple[str, ...], list[str]]:
        problems: tuple[str, ...] = ()
        take: Callable[[], object] | None
        with warnings_heard() as warnings:
            try:
                take = await self._calls.run(reader.key, reader.read, READ_S)
            except Exception as error:  # noqa: BLE001 - one broken file must keep no other from being taken
                problems = self._problems(reader.key, error)
                take = error.take if isinstance(error, ConfigError) else None
        if take is not None:
            with self._measure():
                unused = take()
            await asyncio.to_thread(let_go, unused)  # the loop would free 300,000 users in one turn
        self._count(reader.key, problems)
        return problems, warnings

    def _problems(self, key: str, error: Exception) -> tuple[str, ...]:
        """Return the problems of a key whose files, or whose values, cannot be taken."""
        if isinstance(error, HungError):
            self._hung[key] = None
            kept = "what it held last stays in force, and is read again when it answers"
            return (f"{key}: its file system does not answer; {kept}",)
        if isinstance(error, ConfigError):
            return tuple(error.problems)
        if isinstance(error, StoreError):
            return (str(error),)
        structlog.get_logger().error("reload ended by an unexpected error", exc_info=error)
        return (f"an internal error; Sluice's log has the details: {type(error).__name__}: {error}",)

    def _on_answer(self, _key: object) -> None:
        """Read all files again, as one answers again for which a reload has not waited."""
        self._tasks.start(self._reload_again(), "reload files that answer again")

    async def _reload_again(self) -> None:
        await self.reload("file changed")

    def _count(self, key: str, problems: tuple[str, ...]) -> None:
        self._counters.reload_successful[key] = int(not problems)
        self._counters.reload_failures[key] += bool(problems)
        if not problems:
            self._counters.reload_success_at[key] = int(time.time())

    async def _take(self, who: Principal) -> tuple[bool, tuple[str, ...], UsablePart | None]:
        """Put the configuration in force, of a folder the part that can be used; return whether anything changes.

        Returns also the problems of the other files, and which are taken where others are not.
        """
        with paused_collector():  # here, as the thread may never come to the end of the pause
            ready = await self._calls.run(CONFIG, self._read_and_prepare, CONFIG_S)
        try:
            has_changed = await ready.take(who)
        except Exception as error:  # noqa: BLE001 - as in `reload`; the files have problems besides
            return False, (*ready.problems, *self._problems(CONFIG, error)), None
        self.config = ready.config
        if ready.config.way_to_brokers == self._at_start.way_to_brokers:
            self.brokers_of = ready.config
        return has_changed, ready.problems, ready.part

    def _read_and_prepare(self) -> _Ready:
        problems: tuple[str, ...] = ()
        part: UsablePart | None = None
        try:
            config = self._read()
        except ConfigError as error:
            if error.usable is None:
                raise
            part, problems = error.usable, tuple(error.problems)
            config = part.config
        take = self._prepare(config)
        limits, config = config.limits, config.model_copy(update={"limits": Limits()})
        for section in vars(limits).values():
            let_go(section)  # before it is searched for garbage
        return _Ready(config, take, problems, part)

    def _other_keys(self, config: Config) -> tuple[str, ...]:
        keys = sorted(set(type(config).model_fields) - LIVE)
        now, then = _without_live(config), _without_live(self._at_start)
        before = {key: self.brokers_of if key in BROKERS else then for key in keys}
        return tuple(key for key in keys if getattr(now, key) != getattr(before[key], key))

    def _log_outcome(self, result: str) -> None:
        assert self.last is not None
        self._counters.reloads[result] += 1
        who = self.last.who
        author = {} if who is None else {"by": who.name, "address": who.address}
        log = structlog.get_logger().bind(cause=self.last.cause, **author)
        if self.last.problems:
            for problem in self.last.problems:
                log.error("configuration not reloaded", problem=problem)
            for file, why in self.last.files_kept.items():
                log.warning("file of the configuration not reloaded", file=file, why=why)
            for file in self.last.files_taken:
                log.info("file of the configuration reloaded", file=file)
        else:
            log.info("configuration reloaded", changed=result == "taken")
        for key in self.last.needs_restart:
            log.warning(_NEEDS_RESTART, key=key)


def _without_live(config: Config) -> Config:
    admission = config.admission.model_copy(update={"subscribe_rate_per_consumer": None})
    return config.model_copy(update={"admission": admission})


if sys.platform == "linux":
    from asyncinotify import Inotify, Mask

    _CHANGES = Mask.CLOSE_WRITE | Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO

_DEBOUNCE_S = 0.05
"""Changes closer together are one: editors write in several steps."""
_MOST_DEBOUNCED_S = 1.0
"""Most seconds that a change waits where the folder changes all the time."""
_LOOK_S = 60.0 if sys.platform == "linux" else 1.0
"""Seconds between two looks in any case: the kernel does not report changes of a network's file system."""

Fingerprint = tuple[str, int, int, int]


async def changes_of(seen: Mapping[Path, Fingerprint | None]) -> AsyncGenerator[None, None]:
    """Yield whenever one of the files has changed; ends with its task.

    The folders of the files, and those that links lead to, are watched: a file that is replaced is a new one.

    Args:
        seen: The files' fingerprints from before they were read; of a folder, that of all its configuration files.

    Raises:
        OSError: If a folder cannot be watched.
    """
    before, calls = dict(seen), FileCalls()
    with _Watch(before, calls) as watch:
        await watch.begin()
        while True:
            now = await _looked_at(before, calls)
            if now != before:
                before = now
                yield None
            await watch.changed()


class _Watch:
    """Subscribe to the kernel's events about the folders of some files, until the block ends.

    Args:
        files: Their folders must be there.
        calls: Makes calls of the file system.
    """

    def __init__(self, files: Iterable[Path], calls: FileCalls) -> None:
        self._files = list(files)
        self._calls = calls
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        if sys.platform == "linux":
            self._inotify = self._closing.enter_context(Inotify())
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    async def begin(self) -> None:
        """Subscribe; a file system that does not answer is passed over.

        Raises:
            OSError: If the folder of a file cannot be watched.
        """
        for error in await self._add():
            raise error

    async def changed(self) -> None:
        """Return when one of the folders has changed, or after `_LOOK_S`."""
        if sys.platform != "linux":
            await asyncio.sleep(_LOOK_S)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._inotify.get()
            async with asyncio.timeout(_MOST_DEBOUNCED_S):
                while True:
                    async with asyncio.timeout(_DEBOUNCE_S):
                        await self._inotify.get()
        # A folder that was removed and made again is another one, and links may have other targets now.
        await self._add()

    async def _add(self) -> list[OSError]:
        """Watch the folders of each file; return the errors."""
        if sys.platform != "linux":
            return []

        async def add(file: Path) -> OSError | None:
            try:
                await self._calls.run(("watch", file), partial(self._add_folders, file), LOOK_S)
            except HungError:
                return None
            except OSError as error:
                return error
            return None

        errors = await asyncio.gather(*map(add, self._files))
        return [error for error in errors if error is not None]

    def _add_folders(self, file: Path) -> None:
        is_folder = file.is_dir()
        own = file if is_folder else file.parent
        self._inotify.add_watch(own, _CHANGES)
        linked = {Path(os.path.realpath(each)).parent for each in (files_in(file) if is_folder else (file,))}
        for folder in sorted(linked - {own}):
            with suppress(OSError):  # the target of a broken link
                self._inotify.add_watch(folder, _CHANGES)


_HANGS: Fingerprint = ("does not answer", 0, 0, 0)
"""A file that does not answer differs from each that does, so that both ends of this are a change."""


async def _looked_at(files: Iterable[Path], calls: FileCalls) -> dict[Path, Fingerprint | None]:
    """Return the fingerprints of files, each of which a thread looks at: one that hangs keeps no other one back."""

    async def look_at(file: Path) -> Fingerprint | None:
        try:
            return await calls.run(file, partial(_of, file), LOOK_S)
        except HungError:
            return _HANGS

    paths = list(files)
    return dict(zip(paths, await asyncio.gather(*map(look_at, paths)), strict=True))


def fingerprints(files: Iterable[Path]) -> dict[Path, Fingerprint | None]:
    """Return fingerprints, which differ between files of the same name; None for a file that does not exist."""
    return {file: _of(file) for file in files}


def _of(file: Path) -> Fingerprint | None:
    try:
        status = file.stat()
        if file.is_dir():
            inside = tuple(sorted(fingerprints(files_in(file)).items()))
            return os.path.realpath(file), status.st_ino, len(inside), hash(inside)
    except OSError:
        return None
    return os.path.realpath(file), status.st_ino, status.st_size, status.st_mtime_ns
