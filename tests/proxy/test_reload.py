import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.config.limits import Limits
from proxy.config.model import Config, ConfigError
from proxy.observe.counters import Counters
from proxy.policies.keys import Principal
from proxy.policies.store import StoreError
from proxy.reload import Reloader


class Desk:
    """A configuration that somebody edits."""

    def __init__(self, **at_start: Any) -> None:
        self.written: Callable[[], Config] = lambda: Config.model_validate(at_start)
        self.other_problem = ""
        self.fails: Exception | None = None
        self.read_by: list[threading.Thread] = []
        self.taken_beside = 0
        self.taken: list[Config] = []
        self.takers: list[Principal] = []
        self.counters = Counters()
        self.reloader = Reloader(self.written(), self._read, self._read_beside, self._prepare, self.counters)

    def _read(self) -> Config:
        return self.written()

    def write(self, **values: Any) -> None:
        self.written = lambda: Config.model_validate(values)

    def break_it(self, *problems: str) -> None:
        def read() -> Config:
            raise ConfigError(list(problems))

        self.written = read

    def _read_beside(self) -> Callable[[], None]:
        self.read_by.append(threading.current_thread())
        if self.other_problem:
            raise ConfigError([self.other_problem])

        def take() -> None:
            self.taken_beside += 1

        return take

    def _prepare(self, config: Config) -> Callable[[Principal], Awaitable[bool]]:
        async def take(who: Principal) -> bool:
            if self.fails is not None:
                raise self.fails
            self.takers.append(who)
            before = self.taken[-1] if self.taken else None
            self.taken.append(config)
            return config != before

        return take


_LIMITED = {"each_topic": {"publish": {"messages": 5}}}


async def test_a_new_configuration_is_taken_and_the_same_one_is_no_change() -> None:
    desk = Desk()
    desk.write(limits=_LIMITED)

    outcome = await desk.reloader.reload("SIGHUP")
    assert (outcome.cause, outcome.problems, outcome.needs_restart) == ("SIGHUP", (), ())
    assert desk.taken[-1].limits.each_topic is not None
    assert desk.reloader.config.limits == Limits()

    await desk.reloader.reload("SIGHUP")
    assert desk.counters.reloads == {"taken": 1, "unchanged": 1}


async def test_a_broken_one_changes_nothing_and_says_all_that_is_wrong() -> None:
    desk = Desk(proxy_id="kept")
    desk.break_it("f: limits.x: not known", "f: listen: no port")

    outcome = await desk.reloader.reload("file changed")

    assert outcome.problems == ("f: limits.x: not known", "f: listen: no port")
    assert desk.taken == []
    assert desk.reloader.config.proxy_id == "kept"
    assert desk.counters.reloads == {"refused": 1}
    assert desk.reloader.last == outcome


async def test_who_asked_is_told_with_the_outcome_in_the_log_and_to_what_takes_it() -> None:
    desk, ann = Desk(), Principal("ann", "10.0.0.1")
    with capture_logs() as logs:
        asked = await desk.reloader.reload("rest", ann)
        signalled = await desk.reloader.reload("SIGHUP")
        desk.break_it("f: listen: no port")
        refused = await desk.reloader.reload("rest", ann)

    assert [(one.cause, one.who) for one in (asked, signalled, refused)] == [
        ("rest", ann),
        ("SIGHUP", None),
        ("rest", ann),
    ]
    assert desk.takers == [ann, Principal("SIGHUP", "")]
    assert [(line["cause"], line.get("by"), line.get("address")) for line in logs] == [
        ("rest", "ann", "10.0.0.1"),
        ("SIGHUP", None, None),
        ("rest", "ann", "10.0.0.1"),
    ]


async def test_a_good_one_with_a_broken_file_beside_it_changes_nothing() -> None:
    desk = Desk()
    desk.write(limits=_LIMITED)
    desk.other_problem = "tokens.yaml: is not YAML"

    assert (await desk.reloader.reload("SIGHUP")).problems == ("tokens.yaml: is not YAML",)
    assert desk.taken == []


async def test_files_beside_it_are_read_by_a_thread_and_count_with_it() -> None:
    desk = Desk()
    await desk.reloader.reload("SIGHUP")
    assert threading.current_thread() not in desk.read_by
    assert (len(desk.read_by), desk.taken_beside) == (1, 1)


@pytest.mark.parametrize(
    ("error", "problem", "logged"),
    [
        (StoreError("policies.store: p.db: disk I/O error"), "policies.store: p.db: disk I/O error", []),
        (
            KeyError("x"),
            "a mistake of Sluice, of which its log says more: KeyError: 'x'",
            ["reload ended by an unexpected error"],
        ),
    ],
)
async def test_one_that_fails_in_the_end_is_told_as_any_other_and_the_next_one_counts(
    error: Exception, problem: str, logged: list[str]
) -> None:
    desk = Desk(proxy_id="kept")
    desk.write(proxy_id="new", limits=_LIMITED)
    desk.fails = error
    with capture_logs() as logs:
        outcome = await desk.reloader.reload("rest", Principal("ann", "10.0.0.1"))

    assert outcome.problems == (problem,)
    assert desk.reloader.last == outcome
    assert (desk.taken_beside, desk.reloader.config.proxy_id) == (0, "kept")
    assert [line["event"] for line in logs if line.get("exc_info") is error] == logged
    assert [line["problem"] for line in logs if line["event"] == "configuration not reloaded"] == [problem]

    desk.fails = None
    assert (await desk.reloader.reload("file changed")).problems == ()
    assert desk.counters.reloads == {"refused": 1, "taken": 1}


async def test_of_admission_only_the_subscribe_rate_takes_no_restart() -> None:
    desk = Desk(admission={"subscribe_rate_per_consumer": "5/30s"})
    desk.write(admission={"subscribe_rate_per_consumer": "7/30s"})
    assert (await desk.reloader.reload("SIGHUP")).needs_restart == ()
    desk.write(admission={"max_producers_per_topic": 1})
    assert (await desk.reloader.reload("SIGHUP")).needs_restart == ("admission",)


async def test_what_takes_a_restart_is_named_as_long_as_it_differs_from_the_start() -> None:
    desk = Desk(listen="127.0.0.1:1", broker="pulsar://b:1")
    desk.write(listen="127.0.0.1:2", broker="pulsar://b:2", limits=_LIMITED)
    assert (await desk.reloader.reload("SIGHUP")).needs_restart == ("broker", "listen")

    desk.write(listen="127.0.0.1:1", broker="pulsar://b:2")
    assert (await desk.reloader.reload("SIGHUP")).needs_restart == ("broker",)
