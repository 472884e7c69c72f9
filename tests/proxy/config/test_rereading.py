"""A folder that is read again: as many of its changed files as are good together are taken, and no limit vanishes."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from proxy.config import rereading, written
from proxy.config.model import ConfigError, UsablePart, load
from proxy.config.rereading import ConfigFiles
from proxy.config.yaml_reader import parse_yaml


def plan(*names: str) -> str:
    return f"limits: {{plans: {{{', '.join(f'{name}: {{publish: {{messages: 5}}}}' for name in names)}}}}}"


def tenants(**limits: int | str) -> str:
    shown = (f"{name}: {f'{{publish: {{messages: {value}}}}}'}" for name, value in limits.items())
    return f"limits: {{tenants: {{{', '.join(shown)}}}}}"


def on_plan(name: str, of_plan: str) -> str:
    return f"limits: {{tenants: {{{name}: {of_plan}}}}}"


def patterns(count: int, start: int = 1) -> str:
    named = (f'"{"a" * length}*": {{publish: {{messages: 5}}}}' for length in range(start, start + count))
    return f"limits: {{tenants: {{{', '.join(named)}}}}}"


def group(name: str, tenant: str, rate: int = 3) -> str:
    return f"limits: {{resource_groups: {{{name}: {{publish: {{messages: {rate}}}, tenants: [{tenant}]}}}}}}"


def topic(name: str, rate: int | str) -> str:
    return f"limits: {{topics: {{{name}: {{publish: {{messages: {rate}}}}}}}}}"


class Folder:
    """A folder of files that is in force, and then changes."""

    def __init__(self, path: Path, before: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.write(before)
        self.files = ConfigFiles(path, {}, environment or {})
        self.files.read()

    def write(self, files: Mapping[str, str | None]) -> None:
        for name, text in files.items():
            file = self.path / f"{name}.yaml"
            if text is None:
                file.unlink()
            else:
                file.write_text(f"{text}\n")

    def reread(self, changes: Mapping[str, str | None]) -> tuple[UsablePart | None, dict[str, str]]:
        """Return what is taken, and the last line about each file."""
        self.write(changes)
        with pytest.raises(ConfigError) as caught:
            self.files.reread()
        lines = [problem.replace(f"{self.path}/", "") for problem in caught.value.problems]
        return caught.value.usable, {line.partition(".yaml: ")[0]: line for line in lines if ".yaml: " in line}


def names(files: Any) -> set[str]:
    return {Path(each).stem for each in files}


BEFORE = {"plans": plan("gold"), "t1": on_plan("t1", "gold"), "t2": tenants(t2=7), "t3": tenants(t3=7)}


@pytest.mark.parametrize(
    ("more", "changes", "taken", "kept"),
    [
        pytest.param({}, {"plans": plan("silver"), "t2": tenants(t2=1)}, {"t2"}, {"plans"}, id="a plan is renamed"),
        pytest.param(
            {},
            {"plans": plan("silver"), "t4": on_plan("t4", "silver"), "t2": tenants(t2=1), "t3": None},
            {"t2", "t3"},
            {"plans", "t4"},
            id="a new file has the plan's new name",
        ),
        pytest.param(
            {"t4": on_plan("t4", "gold")},
            {"plans": plan("silver"), "t4": on_plan("t4", "silver"), "t2": tenants(t2=1)},
            {"t2"},
            {"plans", "t4"},
            id="a changed file has the plan's new name",
        ),
        pytest.param(
            {},
            {"plans": plan("silver"), "t4": on_plan("t4", "gold"), "t2": tenants(t2=1)},
            {"t2", "t4"},
            {"plans"},
            id="a new file has the plan's former name",
        ),
        pytest.param(
            {},
            {"plans": plan("silver"), "t1": on_plan("t1", "silver"), "t2": tenants(t2="x"), "t3": tenants(t3=1)},
            {"plans", "t1", "t3"},
            {"t2"},
            id="a plan is renamed in all files, and another has a mistake",
        ),
        pytest.param(
            {},
            {"plans": plan("gold", "silver"), "t1": tenants(t1=1), "t2": on_plan("t2", "brass"), "t3": tenants(t3=1)},
            {"plans", "t1", "t3"},
            {"t2"},
            id="a file refers to no plan",
        ),
        pytest.param(
            {"t4": patterns(1)},
            {"t4": patterns(1, 2), "patterns": patterns(18, 3), "t2": tenants(t2=1)},
            {"t2", "t4"},
            {"patterns"},
            id="a new file has too many patterns",
        ),
        pytest.param(
            {"g": group("g", "t1")},
            {"g": group("g", "t1", 2), "h": group("h", "t1"), "t2": tenants(t2=1)},
            {"t2", "g"},
            {"h"},
            id="a tenant is attached to two groups",
        ),
        pytest.param(
            {"a": topic("acme/shop/a", 1)},
            {"b": topic("persistent://acme/shop/a", 2), "a": topic("acme/shop/b", 1), "t2": "limits: ["},
            {"a", "b"},
            {"t2"},
            id="a topic moves, and another file is no YAML",
        ),
        pytest.param(
            {"a": topic("acme/shop/a", 1)},
            {"b": topic("persistent://acme/shop/a", 2), "t2": tenants(t2=1)},
            {"t2"},
            {"b"},
            id="a topic has two spellings",
        ),
        pytest.param(
            {},
            {"wrong": "\n".join(f"key{each}: 1" for each in range(200)), "t2": tenants(t2=1), "t3": tenants(t3=1)},
            {"t2", "t3"},
            {"wrong"},
            id="a new file has many unknown keys",
        ),
        pytest.param(
            {"base": "listen: 127.0.0.1:1\nbroker_tls: {}"},
            {"base": "listen: 127.0.0.1:2\nadmin: 127.0.0.1:3", "other": "metrics: 127.0.0.1:3", "t2": tenants(t2=1)},
            {"base", "t2"},
            {"other"},
            id="two addresses are one",
        ),
        pytest.param(
            {"base": "listen: pulsar+ssl://127.0.0.1:1", "tls": "tls: {certificate: a.pem, key: b.pem}"},
            {
                "base": "listen: 127.0.0.1:2",
                "tls": f"tls: {{certificate: a.pem, key: b.pem}}\n{tenants(t4=1)}",
                "a": "linger: 5s",
                "z": "linger: 6s",
                "t2": tenants(t2=1),
            },
            {"t2", "tls"},
            {"base", "a", "z"},
            id="a listener is plain, and TLS is in another file",
        ),
    ],
)
def test_largest_good_set_of_changed_files_is_taken(
    tmp_path: Path, more: dict[str, str], changes: dict[str, str | None], taken: set[str], kept: set[str]
) -> None:
    part, lines = Folder(tmp_path, {**BEFORE, **more}).reread(changes)
    assert part is not None
    assert (names(part.taken), names(part.kept)) == (taken, kept)
    assert {name for name in kept if "content of before" in lines[name]} == kept


@pytest.mark.parametrize(
    ("more", "changes", "kept"),
    [
        pytest.param({}, {"t3": tenants(t2=7, t3="010"), "t2": None}, {"t2", "t3"}, id="to a changed file"),
        pytest.param({}, {"t5": tenants(t2="010"), "t2": "limits: {}"}, {"t2", "t5"}, id="to a new file"),
        pytest.param({}, {"t5": "limits: {tenants: {t2: , t5: {}}}", "t2": None}, {"t2", "t5"}, id="without its value"),
        pytest.param({}, {"t5": f"{tenants(t2=7)}\nlimits: [", "t2": None}, {"t2", "t5"}, id="to a file of no YAML"),
        pytest.param(
            {},
            {"t5": "limits: {tenants: {'t*': {publish: {messages: x}}}}", "t2": None},
            {"t2", "t5"},
            id="to a pattern",
        ),
        pytest.param(
            {},
            {"t5": "limits: {tenants: {'*': {publish: {messages: x}}}}", "t2": None},
            {"t2", "t5"},
            id="to each other tenant",
        ),
        pytest.param(
            {},
            {"t5": tenants(t2="x", t6=1), "t2": tenants(t3=7), "t3": "linger: 5s"},
            {"t2", "t3", "t5"},
            id="in a chain",
        ),
        pytest.param(
            {"a": topic("acme/shop/a", 1)},
            {"b": topic("persistent://acme/shop/a", "x"), "a": "linger: 5s"},
            {"a", "b"},
            id="in another spelling",
        ),
        pytest.param(
            {"b": "blocks: [{role: x}]"},
            {"b": "linger: 5s", "c": "blocks: [{role: x, until: y}]"},
            {"b", "c"},
            id="a block",
        ),
    ],
)
def test_limit_that_moves_to_a_file_with_a_mistake_stays(
    tmp_path: Path, more: dict[str, str], changes: dict[str, str | None], kept: set[str]
) -> None:
    folder = Folder(tmp_path, {**BEFORE, **more})
    before = folder.files.read()
    part, lines = folder.reread(changes | {"plans": plan("gold", "silver")})
    assert part is not None
    assert (names(part.taken), names(part.kept)) == ({"plans"}, kept)
    assert (part.config.limits.tenants, part.config.limits.topics, part.config.blocks) == (
        before.limits.tenants,
        before.limits.topics,
        before.blocks,
    )
    assert {name for name in kept if "content of before" in lines[name]} == kept


def test_file_that_dropped_a_value_has_no_mistake_in_it(tmp_path: Path) -> None:
    part, lines = Folder(tmp_path, BEFORE).reread({"t3": tenants(t2="010", t3=7), "t2": tenants(t4=1)})
    assert part is not None
    assert part.kept == {
        f"{tmp_path}/t2.yaml": "it drops limits that another file may have, which is not taken",
        f"{tmp_path}/t3.yaml": "it has a mistake",
    }
    dropped = (
        "it has limits.tenants.t2.publish.messages no more, which t3.yaml may have now, and that file is not taken"
    )
    assert lines["t2"] == f"t2.yaml: the content of before holds: {dropped}"
    assert ": limits.tenants.t2.publish.messages: write a rate" in lines["t3"]


@pytest.mark.parametrize("bad", [tenants(t5="010"), "limits: [", "", "text", None])
def test_limit_that_is_removed_goes_though_a_file_has_a_mistake(tmp_path: Path, bad: str | None) -> None:
    folder = Folder(tmp_path, {**BEFORE, "t5": tenants(t5=7)})
    changes: dict[str, str | None] = {"t5": bad, "t2": None, "t3": "limits: {}"}
    if bad is None:
        changes = {**changes, "t5": tenants(t5="x")}
    part, _ = folder.reread(changes)
    assert part is not None
    assert (names(part.taken), names(part.kept)) == ({"t2", "t3"}, {"t5"})
    assert set(part.config.limits.tenants) == {"t1", "t5"}


class Looks:
    """Counts looks at the whole folder, and readings of single files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_folder = self.at_files = 0
        load_folder, parse = load, parse_yaml

        def counted_load(*args: Any) -> Any:
            self.at_folder += 1
            return load_folder(*args)

        def counted_parse(text: str) -> Any:
            self.at_files += 1
            return parse(text)

        monkeypatch.setattr(rereading, "load", counted_load)
        monkeypatch.setattr(written, "parse_yaml", counted_parse)


@pytest.mark.parametrize(
    ("bad", "looks"),
    [
        pytest.param(lambda each: "limits: [", 2, id="no YAML"),
        pytest.param(lambda each: tenants(**{f"n{each}": "x"}), 5, id="wrong values"),
        pytest.param(lambda each: on_plan(f"n{each}", "no"), 5, id="no plan"),
        pytest.param(lambda each: tenants(t2=each), 2, id="the same key"),
    ],
)
def test_many_bad_files_are_found_in_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: Callable[[int], str], looks: int
) -> None:
    folder = Folder(tmp_path, BEFORE)
    counted = Looks(monkeypatch)
    part, lines = folder.reread({f"n{each}": bad(each) for each in range(300)} | {"t3": tenants(t3=1)})
    assert part is not None
    assert (names(part.taken), len(part.kept), len(lines)) == ({"t3"}, 300, 300)
    assert counted.at_folder <= looks
    assert counted.at_files <= len(BEFORE) + 300 + 1


def test_file_of_no_key_is_found_by_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"tls": "tls: {certificate: a.pem, key: b.pem}", "listen": "listen: pulsar+ssl://127.0.0.1:1"}
    folder = Folder(tmp_path, before)
    counted = Looks(monkeypatch)
    part, lines = folder.reread(
        {f"n{each}": tenants(**{f"n{each}": 1}) for each in range(200)} | {"listen": "listen: 127.0.0.1:1"}
    )
    assert part is not None
    assert (len(part.taken), names(part.kept)) == (200, {"listen"})
    assert "no address in listen has TLS" in lines["listen"]
    assert counted.at_folder <= 2 + 1 + 8


def test_after_many_looks_no_more_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "_MOST_LOOKS", 1)
    part, lines = Folder(tmp_path, BEFORE).reread({"t2": tenants(t2="x"), "t3": tenants(t3=1)})
    assert part is not None
    assert (part.taken, names(part.kept)) == ((), {"t2", "t3"})
    assert "mistakes are left after 64 looks" in lines["t3"]


def test_removed_plan_of_a_variable_s_tenant_stays(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BEFORE, {"SLUICE_LIMITS__TENANTS": "{t9: gold}"})
    part, _ = folder.reread({"plans": plan("silver"), "t2": tenants(t2=1)})
    assert part is not None
    assert (names(part.taken), names(part.kept)) == ({"t2"}, {"plans"})


@pytest.mark.parametrize("bad", [None, "limits: [", tenants(t2="x")])
def test_what_was_read_is_freed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str | None) -> None:
    folder, parsed = Folder(tmp_path, BEFORE), list[dict[str, Any]]()
    parse = parse_yaml

    def kept_parse(text: str) -> Any:
        parsed.append(parse(text))
        return parsed[-1]

    monkeypatch.setattr(written, "parse_yaml", kept_parse)
    folder.write({"t3": tenants(t3=1)} if bad is None else {"t3": tenants(t3=1), "t4": bad})
    with suppress(ConfigError):
        folder.files.reread()
    assert len(parsed) >= len(BEFORE)
    assert {len(values) for values in parsed} == {0}
