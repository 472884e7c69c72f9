import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from proxy.config.limits import Limits
from proxy.config.model import Config, ConfigError
from proxy.counters import Counters
from proxy.file_calls import FileCalls
from proxy.files import FileReader
from proxy.observe.operator_log import set_up_operator_log
from proxy.policies.keys import Principal
from proxy.policies.store import StoreError
from proxy.reload import Reloader
from tests.waiting import PATIENCE_S


class Desk:
    """A configuration that somebody edits."""

    def __init__(self, **at_start: Any) -> None:
        self.written: Callable[[], Config] = lambda: Config.model_validate(at_start)
        self.broken: dict[str, Exception] = {}
        """What is wrong with files, by their key."""
        self.warnings: dict[str, str] = {}
        """The warning that the reader of a file logs, by its key."""
        self.of_all_files: list[str] = []
        """Warnings that are logged once, when files have been taken."""
        self.reports_fail = False
        self.hangs: dict[str, threading.Event] = {}
        """Files whose file system does not answer until the event."""
        self.fails: Exception | None = None
        self.read_by: list[threading.Thread] = []
        self.configs_read = 0
        self.files_taken: list[str] = []
        self.taken: list[Config] = []
        self.takers: list[Principal] = []
        self.counters = Counters()
        files = [FileReader(key, partial(self._read_file, key)) for key in ("tls", "tokens", "jwks")]
        self.announced: list[bool] = []
        """For each outcome that was announced, whether it is a degraded state."""
        self.reloader = Reloader(
            self.written(),
            self._read,
            files,
            self._prepare,
            self.counters,
            on_files=self._on_files,
            on_outcome=self._announce,
        )

    def _on_files(self) -> None:
        if self.reports_fail:
            raise RuntimeError("a defect")
        for warning in self.of_all_files:
            structlog.get_logger().warning(warning)
        self.of_all_files.clear()

    def _read(self) -> Config:
        self.configs_read += 1
        if "config" in self.hangs:
            assert self.hangs["config"].wait(PATIENCE_S)
        return self.written()

    def write(self, **values: Any) -> None:
        self.written = lambda: Config.model_validate(values)

    def break_it(self, *problems: str) -> None:
        def read() -> Config:
            raise ConfigError(list(problems))

        self.written = read

    def _announce(self) -> None:
        self.announced.append(bool(list(self.reloader.degraded())))

    def _read_file(self, key: str) -> Callable[[], object]:
        self.read_by.append(threading.current_thread())
        if key in self.hangs:
            assert self.hangs[key].wait(PATIENCE_S)
        if key in self.warnings:
            structlog.get_logger().warning(self.warnings[key], key=key)
        if key in self.broken:
            raise self.broken[key]

        def take() -> dict[int, int]:
            self.files_taken.append(key)
            return {1: 1}

        return take

    def _prepare(self, config: Config) -> Callable[[Principal], Awaitable[bool]]:
        async def take(principal: Principal) -> bool:
            if self.fails is not None:
                raise self.fails
            self.takers.append(principal)
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
    [state] = desk.reloader.degraded()
    assert (state.cause, "(file changed) had 2 problems" in state.reason) == ("reload_refused", True)
    desk.write(proxy_id="kept")
    await desk.reloader.reload("SIGHUP")
    assert list(desk.reloader.degraded()) == []
    assert desk.announced == [True, False]


async def test_who_asked_is_told_with_the_outcome_in_the_log_and_to_what_takes_it() -> None:
    desk, ann = Desk(), Principal("ann", "10.0.0.1")
    with capture_logs() as logs:
        asked = await desk.reloader.reload("rest", ann)
        signalled = await desk.reloader.reload("SIGHUP")
        desk.break_it("f: listen: no port")
        refused = await desk.reloader.reload("rest", ann)

    assert [(outcome.cause, outcome.who) for outcome in (asked, signalled, refused)] == [
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


@pytest.mark.parametrize(
    "error", [ConfigError(["jwks: no keys"]), OSError(5, "I/O error"), ValueError("a mistake of a library")]
)
@pytest.mark.parametrize("broken", ["tls", "tokens", "jwks", "config"])
async def test_broken_file_keeps_no_other_from_being_taken(broken: str, error: Exception) -> None:
    desk = Desk()
    desk.write(limits=_LIMITED)
    if broken == "config":
        desk.break_it("f: listen: no port")
    else:
        desk.broken[broken] = error
    outcome = await desk.reloader.reload("SIGHUP")
    assert len(outcome.problems) == 1
    assert sorted(desk.files_taken) == [key for key in ("jwks", "tls", "tokens") if key != broken]
    assert len(desk.taken) == (broken != "config")
    keys = ("config", "tls", "tokens", "jwks")
    assert desk.counters.reload_successful == {key: int(key != broken) for key in keys}
    assert +desk.counters.reload_failures == {broken: 1}
    assert desk.counters.reloads == {"refused": 1}

    desk.broken.clear()
    desk.write(limits=_LIMITED)
    assert (await desk.reloader.reload("SIGHUP")).problems == ()
    assert desk.counters.reload_successful == dict.fromkeys(keys, 1)
    assert +desk.counters.reload_failures == {broken: 1}


async def test_part_of_a_file_that_can_be_used_is_taken() -> None:
    desk = Desk()
    desk.broken["tls"] = ConfigError(["tls.client_ca: torn"], take=lambda: desk.files_taken.append("part of tls"))
    assert (await desk.reloader.reload("SIGHUP")).problems == ("tls.client_ca: torn",)
    assert sorted(desk.files_taken) == ["jwks", "part of tls", "tokens"]
    assert desk.counters.reload_successful["tls"] == 0


class Patience:
    """Patience that lasts until a test ends it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._over = asyncio.Event()
        monkeypatch.setattr(FileCalls, "patience", lambda _, _seconds: self._over.wait())

    def end(self) -> None:
        """Ends that of all who wait now."""
        self._over.set()
        self._over = asyncio.Event()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Patience:
    return Patience(monkeypatch)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - threads make it true
            await asyncio.sleep(0)


@pytest.mark.parametrize("hung", ["tls", "tokens", "jwks"])
async def test_file_that_hangs_holds_no_other_back(patience: Patience, hung: str) -> None:
    desk, others = Desk(), sorted({"tls", "tokens", "jwks"} - {hung})
    desk.write(limits=_LIMITED)
    desk.hangs[hung] = threading.Event()
    reload = asyncio.ensure_future(desk.reloader.reload("SIGHUP"))
    await until(lambda: sorted(desk.files_taken) == others)
    assert not reload.done()
    patience.end()
    (problem,) = (await reload).problems
    assert problem.startswith(f"{hung}: its file system does not answer; what it held last stays in force")
    assert len(desk.taken) == 1
    assert desk.counters.reload_successful[hung] == 0
    [state] = desk.reloader.degraded()
    assert (state.cause, state.reason.endswith(f"the file system of {hung} does not answer")) == (
        "reload_refused",
        True,
    )

    (problem,) = (await desk.reloader.reload("SIGHUP")).problems
    assert problem.startswith(f"{hung}: its file system does not answer")
    assert len(desk.read_by) == 5, "no second thread waits for the same file, and no reload for the first one"

    desk.hangs.pop(hung).set()
    await until(lambda: desk.reloader.last is not None and not desk.reloader.last.problems)
    assert hung in desk.files_taken
    assert desk.counters.reload_successful[hung] == 1
    assert list(desk.reloader.degraded()) == []


async def test_configuration_that_hangs_holds_no_file_back(patience: Patience) -> None:
    desk = Desk()
    desk.hangs["config"] = threading.Event()
    reload = asyncio.ensure_future(desk.reloader.reload("SIGHUP"))
    await until(lambda: sorted(desk.files_taken) == ["jwks", "tls", "tokens"])
    await until(lambda: not gc.isenabled())
    patience.end()
    (problem,) = (await reload).problems
    assert problem.startswith("config: its file system does not answer")
    assert gc.isenabled(), "the thread that hangs has no search for garbage paused for ever"
    desk.hangs.pop("config").set()
    await until(lambda: len(desk.taken) == 1)


async def test_read_that_is_slow_is_taken_when_it_comes(patience: Patience) -> None:
    desk = Desk()
    desk.hangs["tls"] = slow = threading.Event()
    desk.warnings["tls"] = "expires soon"
    reload = asyncio.ensure_future(desk.reloader.reload("SIGHUP"))
    await until(lambda: len(desk.files_taken) == 2)
    patience.end()
    assert len((await reload).problems) == 1
    slow.set()
    await until(lambda: "tls" in desk.files_taken)
    assert desk.reloader.last is not None
    assert (desk.reloader.last.problems, desk.counters.reload_successful["tls"]) == ((), 1)
    assert desk.announced == [True, False]
    assert (len(desk.read_by), desk.configs_read, desk.counters.reloads) == (3, 1, {"refused": 1}), "no further reload"


async def test_broken_file_that_comes_late_says_what_is_wrong(patience: Patience) -> None:
    desk = Desk()
    desk.hangs["tls"], desk.broken["tls"] = threading.Event(), ConfigError(["tls.key: gone"])
    reload = asyncio.ensure_future(desk.reloader.reload("SIGHUP"))
    await until(lambda: len(desk.files_taken) == 2)
    patience.end()
    await reload
    with capture_logs() as logs:
        desk.hangs["tls"].set()
        await until(lambda: desk.reloader.last is not None and desk.reloader.last.problems == ("tls.key: gone",))
    assert [line["event"] for line in logs] == ["file system answers again", "configuration not reloaded"]


async def test_slow_configuration_is_taken_for_who_asked(patience: Patience) -> None:
    desk, ann = Desk(), Principal("ann", "10.0.0.1")
    desk.hangs["config"] = threading.Event()
    desk.write(limits=_LIMITED)
    reload = asyncio.ensure_future(desk.reloader.reload("rest", ann))
    await until(lambda: not gc.isenabled())
    patience.end()
    assert len((await reload).problems) == 1
    desk.hangs["config"].set()
    await until(lambda: bool(desk.taken))
    assert (desk.takers, desk.configs_read) == ([ann], 1)
    assert desk.reloader.last is not None
    assert desk.reloader.last.problems == ()


async def test_keys_that_answer_together_cause_no_reloads(patience: Patience) -> None:
    desk, mount = Desk(), threading.Event()
    desk.hangs = dict.fromkeys(("tls", "tokens", "jwks"), mount)
    reload = asyncio.ensure_future(desk.reloader.reload("SIGHUP"))
    await until(lambda: len(desk.read_by) == 3)
    patience.end()
    await reload
    await desk.reloader.reload("SIGHUP")
    mount.set()
    await until(lambda: len(desk.files_taken) == 6)
    assert (len(desk.read_by), desk.configs_read) == (6, 2), "each once more, as a reload asked for it meanwhile"
    assert list(desk.reloader.degraded()) == []


async def test_configuration_that_hangs_holds_no_later_file_back(patience: Patience) -> None:
    desk = Desk()
    desk.hangs["config"] = threading.Event()
    reload = asyncio.ensure_future(desk.reloader.reload("SIGHUP"))
    await until(lambda: desk.configs_read == 1)
    for _ in range(3):
        await desk.reloader.file_changed()
    assert desk.files_taken.count("tls") == 4
    assert not reload.done()
    desk.hangs.pop("config").set()
    await reload
    await until(lambda: len(desk.announced) == 2)
    assert desk.configs_read == 2, "one reload is for all changes"


async def test_change_while_the_configuration_is_read_is_not_lost() -> None:
    desk = Desk()
    desk.hangs["config"] = reading = threading.Event()
    await desk.reloader.file_changed()
    await until(lambda: desk.configs_read == 1)
    await desk.reloader.file_changed()
    desk.hangs.clear()
    reading.set()
    await until(lambda: desk.configs_read == 2)


async def desk_whose_tls_hangs(patience: Patience) -> Desk:
    """Return a desk after a reload that has not waited for the files of `tls`."""
    desk = Desk()
    desk.hangs["tls"] = threading.Event()
    reload = asyncio.ensure_future(desk.reloader.reload("SIGHUP"))
    await until(lambda: len(desk.files_taken) == 2)
    patience.end()
    await reload
    return desk


async def test_hung_file_is_named_while_the_next_reload_runs(patience: Patience) -> None:
    desk = await desk_whose_tls_hangs(patience)
    desk.hangs["config"] = threading.Event()
    reload = asyncio.ensure_future(desk.reloader.reload("SIGHUP"))
    await until(lambda: desk.configs_read == 2)
    [state] = desk.reloader.degraded()
    assert state.reason.endswith("the file system of tls does not answer")
    for each in desk.hangs.values():
        each.set()
    await reload


async def test_file_that_answers_at_the_end_changes_nothing(patience: Patience) -> None:
    desk = await desk_whose_tls_hangs(patience)
    (reading,) = (thread for thread in desk.read_by if thread.is_alive())
    await desk.reloader.reload("SIGHUP")
    desk.reloader.stop()
    desk.hangs["tls"].set()
    reading.join(PATIENCE_S)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "tls" not in desk.files_taken
    assert len(asyncio.all_tasks()) == 1


async def test_thread_that_cannot_be_started_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    desk = Desk()
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", start)
        problems = (await desk.reloader.reload("SIGHUP")).problems
    assert [problem.partition(": ")[::2] for problem in problems] == [
        (key, "no thread can be started to read it; see the bounds of the cgroup's pids and of ulimit -u")
        for key in ("config", "tls", "tokens", "jwks")
    ]
    assert (await desk.reloader.reload("SIGHUP")).problems == ()
    assert sorted(desk.files_taken) == ["jwks", "tls", "tokens"]


async def test_caller_that_is_cancelled_leaves_the_next_one_its_time() -> None:
    calls, answers = FileCalls(), threading.Event()
    calls.patience = lambda _seconds: asyncio.Event().wait()
    first = asyncio.ensure_future(calls.run("key", answers.wait, 1))
    await asyncio.sleep(0)
    next_one = asyncio.ensure_future(calls.run("key", lambda: "read", 1))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    answers.set()
    assert await next_one == "read"


async def test_panic_of_a_library_is_an_error_of_its_call() -> None:
    class PanicError(BaseException):
        """As PyO3 raises them."""

    def panic() -> None:
        raise PanicError("index out of bounds")

    calls = FileCalls()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="PanicError: index out of bounds"):
            await calls.run("key", panic, PATIENCE_S)


async def test_report_about_files_that_fails_keeps_no_configuration() -> None:
    desk = Desk()
    desk.reports_fail = True
    desk.write(limits=_LIMITED)
    await desk.reloader.file_changed()
    await until(lambda: bool(desk.taken))


async def test_reload_does_not_wait_for_memory_to_be_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    freed, freeing = threading.Event(), list[object]()

    def let_go(tree: object) -> None:
        freeing.append(tree)
        assert freed.wait(PATIENCE_S)

    monkeypatch.setattr("proxy.reload.let_go", lambda tree: let_go(tree) if tree == {1: 1} else None)
    desk = Desk()
    assert (await desk.reloader.reload("SIGHUP")).problems == ()
    await until(lambda: freeing == 3 * [{1: 1}])
    freed.set()


async def test_last_good_reload_of_each_file_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("proxy.reload.time.time", lambda: now[0])
    desk = Desk()
    desk.broken["tls"] = ConfigError(["tls: broken"])
    now[0] += 60
    await desk.reloader.reload("SIGHUP")
    assert desk.counters.reload_success_at == {"config": 1060, "tls": 1000, "tokens": 1060, "jwks": 1060}


async def test_files_beside_it_are_read_by_a_thread_and_count_with_it() -> None:
    desk = Desk()
    await desk.reloader.reload("SIGHUP")
    assert threading.current_thread() not in desk.read_by
    assert (len(desk.read_by), desk.files_taken) == (3, ["tls", "tokens", "jwks"])


@pytest.mark.parametrize(
    ("error", "problem", "logged"),
    [
        (StoreError("policies.store: p.db: disk I/O error"), "policies.store: p.db: disk I/O error", []),
        (
            KeyError("x"),
            "an internal error; Sluice's log has the details: KeyError: 'x'",
            ["reload ended by an unexpected error"],
        ),
    ],
)
async def test_failing_reload_is_reported_and_the_next_one_counts(
    error: Exception, problem: str, logged: list[str]
) -> None:
    desk = Desk(proxy_id="kept")
    desk.write(proxy_id="new", limits=_LIMITED)
    desk.fails = error
    with capture_logs() as logs:
        outcome = await desk.reloader.reload("rest", Principal("ann", "10.0.0.1"))

    assert outcome.problems == (problem,)
    assert desk.reloader.last == outcome
    assert desk.reloader.config.proxy_id == "kept"
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


async def test_reload_names_keys_that_differ_from_the_start() -> None:
    desk = Desk(listen="127.0.0.1:1", linger="1s")
    desk.write(listen="127.0.0.1:2", linger="2s", limits=_LIMITED)
    assert (await desk.reloader.reload("SIGHUP")).needs_restart == ("linger", "listen")

    desk.write(listen="127.0.0.1:1", linger="2s")
    assert (await desk.reloader.reload("SIGHUP")).needs_restart == ("linger",)


@pytest.mark.parametrize(
    ("changed", "needs_restart"),
    [
        ({"broker": "pulsar://b:2", "allowed_brokers": ["c*:1"]}, ()),
        ({"broker": "pulsar+ssl://b:1"}, ("broker",)),
        ({"broker": "pulsar+ssl://b:1", "allowed_brokers": ["c:1"]}, ("allowed_brokers", "broker")),
        ({"broker": "pulsar://b:2", "broker_proxy_protocol": True}, ("broker", "broker_proxy_protocol")),
        ({"broker": "pulsar://b:2", "authentication": {"mode": "passthrough"}}, ("authentication", "broker")),
    ],
)
async def test_brokers_are_live_unless_the_way_to_them_changes(
    changed: dict[str, Any], needs_restart: tuple[str, ...]
) -> None:
    desk = Desk(broker="pulsar://b:1")
    desk.write(**changed)
    assert (await desk.reloader.reload("SIGHUP")).needs_restart == needs_restart


async def test_reload_takes_brokers_once_their_settings_are_restored() -> None:
    """And as long as others are in force than the file names, it takes a restart."""
    desk = Desk(broker="pulsar://b:1")
    asked = []
    for written in (
        {"broker": "pulsar://b:2"},
        {"broker": "pulsar://b:1", "broker_proxy_protocol": True},
        {"broker": "pulsar://b:3", "broker_proxy_protocol": True},
        {"broker": "pulsar://b:3"},
    ):
        desk.write(**written)
        outcome = await desk.reloader.reload("SIGHUP")
        asked.append((outcome.needs_restart, str(desk.reloader.brokers_of.broker[0])))
    assert asked == [
        ((), "pulsar://b:2"),
        (("broker", "broker_proxy_protocol"), "pulsar://b:2"),
        (("broker", "broker_proxy_protocol"), "pulsar://b:2"),
        ((), "pulsar://b:3"),
    ]


async def test_problems_of_the_configuration_come_before_files() -> None:
    desk = Desk()
    desk.break_it("f:1: listen: no port", "f:2: limits.x: not known")
    desk.broken |= {"tls": ConfigError(["tls.key: gone"]), "jwks": ConfigError(["authentication.token.jwks: empty"])}
    outcome = await desk.reloader.reload("SIGHUP")
    assert outcome.problems == (
        "f:1: listen: no port",
        "f:2: limits.x: not known",
        "tls.key: gone",
        "authentication.token.jwks: empty",
    )


async def test_an_outcome_has_the_warnings_of_the_reload(capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk(listen="127.0.0.1:1")
    before = structlog.get_config()
    set_up_operator_log()
    try:
        structlog.get_logger().warning("heard by no reload")
        desk.warnings["jwks"] = "a key is passed over"
        desk.of_all_files.append("certificate expires soon")
        desk.write(listen="127.0.0.1:2")
        outcome = await desk.reloader.reload("SIGHUP")
    finally:
        structlog.configure(**before)
    assert outcome.warnings == (
        "jwks: a key is passed over",
        "certificate expires soon",
        "listen: a changed value needs a restart to take effect",
    )
    assert capsys.readouterr().err.count("a key is passed over") == 1
