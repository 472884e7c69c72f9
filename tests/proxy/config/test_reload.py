from collections.abc import Callable
from typing import Any

from proxy.config.limits import Limits
from proxy.config.model import Config, ConfigError
from proxy.config.reload import Reloader
from proxy.observe.counters import Counters


class Desk:
    """A configuration that somebody edits."""

    def __init__(self, **at_start: Any) -> None:
        self.written: Callable[[], Config] = lambda: Config.model_validate(at_start)
        self.other_problem = ""
        self.taken: list[Config] = []
        self.counters = Counters()
        self.reloader = Reloader(self.written(), self._read, self._check, self._prepare, self.counters)

    def _read(self) -> Config:
        return self.written()

    def write(self, **values: Any) -> None:
        self.written = lambda: Config.model_validate(values)

    def break_it(self, *problems: str) -> None:
        def read() -> Config:
            raise ConfigError(list(problems))

        self.written = read

    def _check(self) -> None:
        if self.other_problem:
            raise ConfigError([self.other_problem])

    def _prepare(self, config: Config) -> Callable[[], bool]:
        def take() -> bool:
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


async def test_a_good_one_with_a_broken_file_beside_it_changes_nothing() -> None:
    desk = Desk()
    desk.write(limits=_LIMITED)
    desk.other_problem = "tokens.yaml: is not YAML"

    assert (await desk.reloader.reload("SIGHUP")).problems == ("tokens.yaml: is not YAML",)
    assert desk.taken == []


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
