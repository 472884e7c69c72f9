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
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import structlog

from proxy.bulk import let_go
from proxy.config.limits import Limits
from proxy.config.model import Config, ConfigError, UsablePart
from proxy.counters import Counters
from proxy.degraded import Degraded
from proxy.file_calls import CONFIG_S, LOOK_S, READ_S, FileCallError, FileCalls, HungError, in_own_thread
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


@dataclass(frozen=True, slots=True)
class _Found:
    """The findings of the last reload of one key.

    Args:
        part: Of a folder, the part that is in force where another is not.
        hangs: Whether its file system does not answer.
    """

    problems: tuple[str, ...] = ()
    warnings: Iterable[str] = ()
    part: UsablePart | None = None
    hangs: bool = False


_NEEDS_RESTART = "a changed value needs a restart to take effect"
_FILE_CHANGED = "file changed"
CONFIG = "config"
"""The key under which reloads of the configuration itself are counted."""


_MOST_PAUSED_S = 30.0
"""Most seconds in which no cyclic garbage of clients is found, as a thread builds a configuration."""


class Reloader:
    """Reloads the configuration, and keeps the one in force without its limits, which the policy service has.

    A result that comes too late for its reload is put in force all the same, and amends the last outcome: it is the
    latest of its key, as no other reading of that key begins before it is there.

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
        self._files = {reader.key: reader for reader in files}
        self._on_files, self._on_outcome = on_files, on_outcome
        self._measure = measure
        self._counters = counters
        self._calls = FileCalls(self._on_refused)
        self._found: dict[str, _Found] = {}
        self._of_all_files: list[str] = []
        """Warnings about all files together."""
        self._tasks = Tasks()
        self._is_coming = False
        """Whether a reload of the configuration waits for its turn."""
        for key in (CONFIG, *self._files):
            self._note(key, _Found())

    def degraded(self) -> Iterator[Degraded]:
        """Yield a state if part of the last reload was refused."""
        if self.last is not None and self.last.problems:
            kept = len(self.last.files_kept)  # their names may tell one tenant of another
            files = f"; {kept} of the configuration's files {'is' if kept == 1 else 'are'} not taken" if kept else ""
            hung = ", ".join(key for key, findings in self._found.items() if findings.hangs)
            files += f"; the file system of {hung} does not answer" if hung else ""
            yield Degraded(
                "reload_refused",
                f"the last reload ({self.last.cause}) had {len(self.last.problems)} problems; unless they say "
                f"otherwise, what they name is as before{files}",
                "mend the problems that the log and /sluice/status name, and reload again",
            )

    async def reload(self, cause: str, principal: Principal | None = None) -> Outcome:
        """Reload; broken values and files stay as before, all others are taken. Errors are problems of the outcome."""
        await self._take_files()
        return await self._reload_config(cause, principal)

    async def file_changed(self) -> None:
        """Take changed files, and have the configuration read: once for all calls before its turn."""
        await self._take_files()
        self._reload_config_soon()

    def stop(self) -> None:
        """Put nothing in force any more."""
        self._tasks.cancel()
        self._calls.cancel()

    async def _take_files(self) -> None:
        """Put the files of each key in force that can be used, as they come."""
        await asyncio.gather(*map(self._take_file, self._files))
        self._of_all_files = self._files_taken()

    def _files_taken(self) -> list[str]:
        with self._measure(), warnings_heard() as warnings:
            try:
                self._on_files()
            except Exception:  # noqa: BLE001 - a report must keep no configuration from being read
                structlog.get_logger().exception("what files hold could not be reported")
        return warnings

    async def _take_file(self, key: str) -> None:
        await self._within(key, partial(self._read_file, self._files[key]), READ_S)

    async def _reload_config(self, cause: str, principal: Principal | None = None) -> Outcome:
        has_changed = await self._within(CONFIG, partial(self._take, principal or Principal(cause, "")), CONFIG_S)
        self._is_coming = False
        self.last = Outcome(time.time_ns(), cause, principal, **self._all_found())
        self._log_outcome("refused" if self.last.problems else "taken" if has_changed else "unchanged")
        self._on_outcome()
        return self.last

    def _reload_config_soon(self) -> None:
        async def work() -> None:
            await self._reload_config(_FILE_CHANGED)

        if not self._is_coming:
            self._is_coming = True
            self._tasks.start(work(), "reload the configuration")

    async def _within(self, key: str, work: Callable[[], Awaitable[bool]], within_s: float) -> bool:
        try:
            return await self._calls.work(key, work, within_s)
        except HungError as error:
            kept = "what it held last stays in force until it answers"
            self._note(key, _Found((f"{key}: {error}; {kept}",), hangs=True))
            return False

    async def _read_file(self, reader: FileReader) -> bool:
        problems: tuple[str, ...] = ()
        take: Callable[[], object] | None
        with warnings_heard() as warnings:
            try:
                take = await in_own_thread(reader.read)
            except Exception as error:  # noqa: BLE001 - one broken file must keep no other from being taken
                problems = self._problems(reader.key, error)
                take = error.take if isinstance(error, ConfigError) else None
        if take is not None:
            with self._measure():
                unused = take()
            if unused:
                with suppress(FileCallError):
                    in_own_thread(partial(let_go, unused))  # the loop would free 300,000 users in one turn
        self._note(reader.key, _Found(problems, warnings))
        return True

    def _problems(self, key: str, error: Exception) -> tuple[str, ...]:
        """Return the problems of a key whose files, or whose values, cannot be taken."""
        if isinstance(error, ConfigError):
            return tuple(error.problems)
        if isinstance(error, FileCallError):
            return (f"{key}: {error}",)
        if isinstance(error, StoreError):
            return (str(error),)
        structlog.get_logger().error("reload ended by an unexpected error", exc_info=error)
        return (f"an internal error; Sluice's log has the details: {type(error).__name__}: {error}",)

    def _note(self, key: str, findings: _Found) -> None:
        is_late = key in self._found and self._found[key].hangs and not findings.hangs
        self._found[key] = findings
        self._counters.reload_successful[key] = int(not findings.problems)
        self._counters.reload_failures[key] += bool(findings.problems)
        if not findings.problems:
            self._counters.reload_success_at[key] = int(time.time())
        if is_late:
            structlog.get_logger().info("file system answers again", key=key)
            self._amend(key)

    def _amend(self, key: str) -> None:
        """Note in the last outcome what was found of a key since."""
        for problem in self._found[key].problems:
            structlog.get_logger().error("configuration not reloaded", cause=_FILE_CHANGED, problem=problem)
        self._of_all_files += self._files_taken()
        if self.last is not None:
            self.last = replace(self.last, **self._all_found())
            self._on_outcome()

    def _all_found(self) -> dict[str, Any]:
        of_config = self._found[CONFIG]
        needs_restart = self._other_keys(self.config)
        warnings = [warning for key in self._files for warning in self._found[key].warnings]
        warnings += [*self._of_all_files, *of_config.warnings]
        return {
            "problems": tuple(problem for findings in self._found.values() for problem in findings.problems),
            "warnings": (*warnings, *(f"{key}: {_NEEDS_RESTART}" for key in needs_restart)),
            "needs_restart": needs_restart,
            "files_taken": of_config.part.taken if of_config.part else (),
            "files_kept": of_config.part.kept if of_config.part else {},
        }

    def _on_refused(self, key: Hashable) -> None:
        """Read files again whose reading has ended after a reload that did not wait for it: they may have changed."""
        if key == CONFIG:
            self._reload_config_soon()
        else:
            self._tasks.start(self._take_again(str(key)), "read files that answer again")

    async def _take_again(self, key: str) -> None:
        await self._take_file(key)
        self._amend(key)

    async def _take(self, principal: Principal) -> bool:
        """Put the configuration in force, of a folder the part that can be used; return whether anything changes."""
        self._is_coming = False
        has_changed, problems, part = False, tuple[str, ...](), None
        with warnings_heard() as warnings:
            try:
                ready = await self._ready()
                problems = ready.problems
                has_changed = await ready.take(principal)
            except Exception as error:  # noqa: BLE001 - the caller gets it as a problem
                problems = (*problems, *self._problems(CONFIG, error))
            else:
                self.config, part = ready.config, ready.part
                if ready.config.way_to_brokers == self._at_start.way_to_brokers:
                    self.brokers_of = ready.config
        self._note(CONFIG, _Found(problems, warnings, part))
        return has_changed

    async def _ready(self) -> _Ready:
        ready = in_own_thread(self._read_and_prepare)
        with paused_collector():
            await self._calls.wait(ready, _MOST_PAUSED_S)
        return await ready

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
        principal = self.last.who
        author = {} if principal is None else {"by": principal.name, "address": principal.address}
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
        files: The files.
        calls: Makes calls of the file system.
    """

    def __init__(self, files: Iterable[Path], calls: FileCalls) -> None:
        self._files = list(files)
        self._calls = calls
        self._closing = ExitStack()
        self._inotify: Inotify | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    async def begin(self) -> None:
        """Subscribe; what cannot be watched is reported, and changes there are noticed by looks alone."""
        errors: list[Exception] = []
        if sys.platform == "linux":
            try:
                self._inotify = self._closing.enter_context(Inotify())
            except OSError as error:
                errors.append(error)
            else:
                errors += await self._add()
        if errors:
            structlog.get_logger().error(
                "changes of the configuration's files are noticed late: they cannot be watched",
                error=str(errors[0]),
                look_s=_LOOK_S,
            )

    async def changed(self) -> None:
        """Return when one of the folders has changed, or after `_LOOK_S`."""
        if sys.platform != "linux" or self._inotify is None:
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

    async def _add(self) -> list[Exception]:
        """Watch the folders of each file; return the errors, but for a file system that does not answer."""

        async def add(file: Path) -> Exception | None:
            try:
                await self._calls.run(("watch", file), partial(self._add_folders, file), LOOK_S)
            except HungError:
                return None
            except (OSError, FileCallError) as error:
                return error
            return None

        errors = await asyncio.gather(*map(add, self._files))
        return [error for error in errors if error is not None]

    def _add_folders(self, file: Path) -> None:
        assert self._inotify is not None, "subscribed"
        is_folder = file.is_dir()
        own = file if is_folder else file.parent
        self._inotify.add_watch(own, _CHANGES)
        linked = {Path(os.path.realpath(each)).parent for each in (files_in(file) if is_folder else (file,))}
        for folder in sorted(linked - {own}):
            with suppress(OSError):  # the target of a broken link
                self._inotify.add_watch(folder, _CHANGES)


_HANGS: Fingerprint = ("does not answer", 0, 0, 0)
"""A file that cannot be looked at differs from each that can, so that both ends of this are a change."""


async def _looked_at(files: Iterable[Path], calls: FileCalls) -> dict[Path, Fingerprint | None]:
    """Return the fingerprints of files, each of which a thread looks at: one that hangs keeps no other one back."""

    async def look_at(file: Path) -> Fingerprint | None:
        try:
            return await calls.run(file, partial(_of, file), LOOK_S)
        except FileCallError:
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
