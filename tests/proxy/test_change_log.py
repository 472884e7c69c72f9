"""Changes of policies, blocks and the configuration file as lines of the access log."""

from typing import Any, cast

import msgspec
import pytest

from accesslog.record import ChangeLine, HeartbeatLine, LimitLine
from limiter.levels import Setting
from proxy.change_log import ChangeLog, FileContent, difference, differing
from proxy.config.model import Config
from proxy.observe.access_log import MOST_CHANGE_TEXT, AccessLog
from proxy.observe.log_files import LogFiles
from proxy.observe.log_lines import Writer
from proxy.policies.keys import PolicyKey, PolicyKind, Principal, rate_key
from proxy.policies.layers import file_policies
from proxy.policies.store import StoredChange
from tests.proxy.conversation import RecordingFiles, World, publisher
from tests.proxy.wire import send

ANN = Principal("ann", "10.0.0.1")
AT = 1_700_000_000_000_000_000, 9_000_000_000


@pytest.fixture
def files() -> RecordingFiles:
    return RecordingFiles()


@pytest.fixture
def log(files: RecordingFiles) -> ChangeLog:
    return ChangeLog(AccessLog(Writer("p", "boot"), cast("LogFiles", files)))


def lines(files: RecordingFiles) -> list[ChangeLine]:
    return [msgspec.json.decode(line, type=ChangeLine) for line in files.data.splitlines()]


def says(**values: Any) -> FileContent:
    config = Config.model_validate(values)
    return FileContent(file_policies(config.limits, config.admission.subscribe_rate_per_consumer), config.blocks)


def test_a_change_says_who_changed_what_from_what_to_what(log: ChangeLog, files: RecordingFiles) -> None:
    key = rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
    log.changed(StoredChange(key, None, "new"), ANN, AT)
    log.changed(StoredChange(PolicyKey(PolicyKind.BLOCK, "", "role 'r'"), "old", None), ANN, AT)
    first, second = lines(files)
    assert (first.who, first.address, first.duration_ms, first.start) == ("ann", "10.0.0.1", 0, first.end)
    assert (first.what, first.setting, first.name) == ("publish", key.setting, "acme/shop")
    assert (first.before, first.after) == (None, "new")
    assert (second.what, second.setting, second.name) == ("block", "", "role 'r'")
    assert (second.before, second.after, second.seq) == ("old", None, 1)


def test_long_texts_are_cut(log: ChangeLog, files: RecordingFiles) -> None:
    log.changed(StoredChange(PolicyKey(PolicyKind.GROUP, "", "g" * 5000), "ü" * 1000, "x" * 1001), ANN, AT)
    (line,) = lines(files)
    assert [len(line.name), len(line.before or ""), len(line.after or "")] == [MOST_CHANGE_TEXT] * 3
    assert line.before == "ü" * 1000
    assert (line.after or "").endswith("x…")


def test_another_file_is_one_line_with_all_that_it_changes(log: ChangeLog, files: RecordingFiles) -> None:
    before = says(
        limits={"namespaces": {"acme/shop": {"publish": {"messages": "500/s"}}, "acme/web": {"publish": {"bytes": 7}}}},
        blocks=[{"role": "r", "reason": "loud"}],
    )
    after = says(
        limits={
            "namespaces": {"acme/shop": {"publish": {"messages": "30/min"}}, "acme/web": {"publish": {"bytes": 7}}}
        },
        blocks=[{"topic": "a/b/c"}],
    )
    log.reloaded(difference(before, after), Principal("SIGHUP", ""), AT)
    (line,) = lines(files)
    assert (line.who, line.address, line.what, line.setting, line.name) == ("SIGHUP", "", "file", "", "")
    place = f"publish {Setting.TOPIC_OF_NAMESPACE} acme/shop"
    assert line.before == f"{place}: messages 500; block role 'r': blocked loud"
    assert line.after == f"{place}: messages 30/min; block topic 'persistent://a/b/c': blocked"


def test_a_resource_group_that_comes_or_goes_is_a_change_though_it_limits_nothing(
    log: ChangeLog, files: RecordingFiles
) -> None:
    log.reloaded(
        difference(says(limits={"resource_groups": {"old": {}}}), says(limits={"resource_groups": {"new": {}}})),
        ANN,
        AT,
    )
    (line,) = lines(files)
    assert (line.before, line.after) == ("resource group old: there", "resource group new: there")


def test_a_file_that_says_the_same_is_no_line(log: ChangeLog, files: RecordingFiles) -> None:
    values: dict[str, Any] = {"limits": {"tenants": {"acme": {"publish": {"messages": 5}}}}}
    log.reloaded(difference(says(**values), says(**values)), ANN, AT)
    assert files.data == b""


def test_of_a_file_that_changes_much_the_rest_is_counted(log: ChangeLog, files: RecordingFiles) -> None:
    topics = {f"persistent://a/b/{number}": {"publish": {"messages": 5}} for number in range(200)}
    log.reloaded(difference(says(), says(limits={"topics": topics})), ANN, AT)
    (line,) = lines(files)
    assert (line.who, line.address, line.what) == ("ann", "10.0.0.1", "file")
    assert line.before == "… and 100 more"
    assert len(line.after or "") == MOST_CHANGE_TEXT
    assert len(list(differing(says(), says(limits={"topics": topics})))) == 200


def test_a_change_stands_between_the_limiters_lines_before_and_after_it(make_world) -> None:
    world: World = make_world(limits={"namespaces": {"acme/shop": {"publish": {"messages": 1000}}}})
    client, _ = publisher(world)
    world.advance(10.3)
    client >> send(0)
    key = rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")

    def come() -> None:
        moment = world.intervals.flush()
        ChangeLog(world.access).changed(StoredChange(key, None, "new"), ANN, moment)

    world.loop.run(come)
    world.advance(1)
    client >> send(1)
    world.advance(1)
    log_lines = [line for line in world.lines() if not isinstance(line, HeartbeatLine)]
    limits = [line for line in log_lines if isinstance(line, LimitLine)]
    (change,) = [line for line in log_lines if isinstance(line, ChangeLine)]
    assert limits[0].seq < change.seq < limits[1].seq
    assert limits[0].end == change.start == change.end <= limits[1].start
