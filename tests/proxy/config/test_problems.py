"""No line speaks of Python or of pydantic: it says what stands there, and what belongs there."""

import gc
import re
from typing import Any

import msgspec
import pytest
import yaml
from pydantic import ValidationError

from limiter.levels import Setting
from proxy.admin.routes.policies import WantedPolicies, read_set
from proxy.bulk import PIECE
from proxy.config import model, yaml_reader
from proxy.config.limits import TopicLimits
from proxy.config.model import Config, ConfigError, load_config
from proxy.config.sources import kind_of, variables
from proxy.config.yaml_reader import lines_of
from proxy.mistakes import MOST_PROBLEMS, ReadSoFar
from proxy.policies.bodies import BodyError, kept_as_own, limit_of
from proxy.policies.keys import rate_key
from tests.proxy.config.lines import without_line

_JARGON = ("Input", "valid dictionary", "instance of", "function-", "[key]", "NoneType", "str type", "tuple", "dict")

_MISPLACED: tuple[Any, ...] = (None, "rubbish", 7, True, ["a"], {"a": 1}, [{}], 1.5)


def _nested(key: tuple[str, ...], value: Any) -> Any:
    for part in reversed(key):
        value = {part: value}
    return value


@pytest.mark.parametrize("key", [key for key, _ in variables(Config).values()], ids=".".join)
def test_what_stands_in_the_wrong_place_is_told_with_its_key_and_without_jargon(
    tmp_path: Any, key: tuple[str, ...]
) -> None:
    path = tmp_path / "sluice.yaml"
    refused = 0
    for value in _MISPLACED:
        path.write_text(yaml.safe_dump(_nested(key, value)))
        try:
            load_config(path, {})
        except ConfigError as error:
            refused += 1
            for problem in error.problems:
                assert without_line(problem, path).startswith(f"{path}: {key[0]}"), problem
                assert not [word for word in _JARGON if word in problem.removeprefix(str(path))], problem
    assert refused > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers: 4", "workers: this key is not known here; set processes"),
        (
            "fleet: {name: f, listen: 127.0.0.1:1}",
            "fleet.listen: this key is not known here; members meet in topics of the brokers: take it away",
        ),
        ("access_log: here", "access_log: 'here': this is text; a section of keys belongs here"),
        ("access_log: [dir]", "access_log: ['dir']: this is a list; a section of keys belongs here"),
        ("access_log:", "access_log: nothing is written here; leave the key out for its default"),
        ("limits: {topics: [a]}", "limits.topics: ['a']: this is a list; a section of keys belongs here"),
        ("limits: {topics: {a: 5}}", "limits.topics.a: '5': this is text; a section of keys belongs here"),
        ("allowed_brokers: a:1", "allowed_brokers: 'a:1': this is text; a list, as [a, b] belongs here"),
        ("proxy_id: [5]", "proxy_id: ['5']: this is a list; text belongs here"),
        ("max_connections: 010", "max_connections: '010': an integer belongs here; write numbers in decimal digits"),
        ("max_connections: 1,000", "max_connections: '1,000': an integer belongs here; write numbers in decimal"),
        ("max_connections: null", "max_connections: 'null': this is nothing to YAML; leave the key out"),
        ("broker_tls: {verify_hostname: no}", "broker_tls.verify_hostname: 'no': this is text; true or false belongs"),
        ("dispatch: {burst: 5}", "dispatch.burst: this key is not known here; known are preciseDispatcherFlowControl"),
        (
            "limits: {topics: {a: {dispatch: {burst: 5}}}}",
            "limits.topics.a.dispatch.burst: this key is not known here; did you mean burst_messages or burst_bytes?",
        ),
        ("max_connection: 5", "max_connection: this key is not known here; did you mean max_connections?"),
        ("access_log: {Retain-Age: 5d}", "access_log.Retain-Age: this key is not known here; did you mean retain_age?"),
        ("rotate_age: 5s", "rotate_age: this key is not known here; did you mean access_log.rotate_age?"),
        ("publish: {colour: red}", "publish.colour: this key is not known here; known are mode, hold_connection,"),
        ("colour: red", "colour: this key is not known here; see the configuration reference"),
        ("limits: {topics: {a: {publsh: {}}}}", "limits.topics.a.publsh: this key is not known here; did you mean pub"),
        ("blocks: [{rle: x}]", "blocks.0.rle: this key is not known here; did you mean role?"),
        ("max_connections: many", "max_connections: 'many': this is text; an integer belongs here"),
        ("processes: true", "processes: 'true': this is text; an integer belongs here"),
        ("admission: {max_consumers_per_topic: on}", "admission.max_consumers_per_topic: 'on': this is text;"),
        ("publish: {mode: fast}", "publish.mode: 'fast': it must be 'hold' or 'pause'"),
        ("admin_access: {tls: {key: k}}", "admin_access.tls.certificate: this key must be given here"),
        ("blocks: [{role: r}, 5]", "blocks.1: '5': this is text; a section of keys belongs here"),
    ],
)
def test_a_line_says_what_is_there_and_what_belongs_there(tmp_path: Any, text: str, message: str) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    (problem,) = refused.value.problems
    assert without_line(problem, path).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "nothing"), (True, "true or false"), (1, "a number"), ({}, "a section of keys"), (b"", "a bytes")],
)
def test_a_kind_is_named_for_people(value: object, kind: str) -> None:
    assert kind_of(value) == kind


@pytest.mark.parametrize(
    "section", [{"messages": "x"}, {"bytes": "0"}, {"burst_bytes": "5"}, {"colour": "1"}, {"mode": "5"}, {}]
)
def test_the_same_fault_is_told_in_the_same_words_in_the_file_and_in_every_request(section: Any) -> None:
    """The file's line begins with where it stands, that of one limit with whose it is."""
    with pytest.raises(ConfigError) as of_file:
        load_config(None, {}, {"SLUICE_LIMITS__ROLES": yaml.safe_dump({"x": {"publish": section}})})
    with pytest.raises(BodyError) as of_set:
        read_set(msgspec.json.encode({"limits": {"roles": {"x": {"publish": section}}}}))
    with pytest.raises(BodyError) as of_one:
        limit_of(rate_key("publish", Setting.ROLE, "x"), kept_as_own(section))
    assert f"SLUICE_LIMITS__ROLES: {of_set.value}" == str(of_file.value)
    here = str(of_set.value).removeprefix("limits.roles.x.publish").removeprefix(".").removeprefix(": ")
    assert str(of_one.value) == f"publish role x: {here}"


def test_of_many_problems_in_a_request_the_first_are_told() -> None:
    with pytest.raises(BodyError) as refused:
        read_set(msgspec.json.encode({"limits": {"roles": {f"r{number}": 5 for number in range(30)}}}))
    assert str(refused.value).count("; a section of keys belongs here") == 20
    assert str(refused.value).endswith("; and 10 more")


_MANY = 2_000


@pytest.mark.parametrize(
    "wanted",
    [
        {"limits": {f"k{number}": 1 for number in range(_MANY)}},
        {"limits": {}} | {f"k{number}": 1 for number in range(_MANY)},
        {"limits": {"tenants": {"a": {"publish": {f"k{number}": 1 for number in range(_MANY)}}}}},
        {"limits": {"tenants": {f"k{number}": 1 for number in range(_MANY)}}},
        {"limits": {"tenants": {f"k {number}": {} for number in range(_MANY)}}},
        {"limits": {"tenants": {f"k{number}": {"publsh": {}} for number in range(_MANY)}}},
        {"limits": {"tenants": {f"k{number}": {"publish": {"messages": "x"}} for number in range(_MANY)}}},
        {"limits": {"topics": {"a": {"subscriptions": {f"k{number}": 5 for number in range(_MANY)}}}}},
        {"limits": {}, "blocks": [5] * _MANY},
        {"limits": {}, "blocks": [{f"k{number}": 1 for number in range(_MANY)}]},
    ],
    ids=["limits", "top", "limit", "sections", "names", "keys", "numbers", "subscriptions", "blocks", "block"],
)
def test_many_mistakes_make_few_problems(tmp_path: Any, wanted: Any) -> None:
    """An object for each of a million mistakes would take the memory of the process."""
    with pytest.raises(ValidationError) as refused:
        WantedPolicies.model_validate(wanted, context=ReadSoFar())
    assert refused.value.error_count() <= 2 * MOST_PROBLEMS
    with pytest.raises(BodyError) as of_request:
        read_set(msgspec.json.encode(wanted))
    assert len(str(of_request.value)) < 5_000
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump(wanted))
    with pytest.raises(ConfigError) as of_file:
        load_config(path, {})
    assert len(of_file.value.problems) <= 51


def test_suggestions_are_made_for_the_shown_problems_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def match(word: str, *_: object) -> list[str]:
        asked.append(word)
        return []

    monkeypatch.setattr("proxy.config.sources.get_close_matches", match)
    with pytest.raises(BodyError):
        read_set(msgspec.json.encode({"limits": {f"k{number}": 1 for number in range(40)}}))
    assert len(asked) == 20


def test_first_of_two_equal_keys_shows_its_own_mistakes(tmp_path: Any) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("dispatch:\n  burst: 5\ndispatch:\n  burst_messages: 5\n")
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    first = f"{path}:2: dispatch.burst: this key is not known here"
    assert [problem.startswith(first) for problem in refused.value.problems] == [True, False]
    assert "dispatch: this key stands in line 1, too" in refused.value.problems[1]


@pytest.mark.parametrize(
    ("section", "spelling", "other"), [("topics", "t", "public/default/t"), ("addresses", "192.0.3.1", "192.0.3.1/32")]
)
def test_a_name_of_two_spellings_is_shown_at_its_line(tmp_path: Any, section: str, spelling: str, other: str) -> None:
    path = tmp_path / "sluice.yaml"
    names = [spelling, *(f"n{number}" if section == "topics" else f"192.0.2.{number}" for number in range(50)), other]
    limits = "".join(f"    '{name}': {{publish: {{messages: 5}}}}\n" for name in names)
    path.write_text(f"limits:\n  {section}:\n{limits}")
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    (problem,) = refused.value.problems
    assert problem.startswith(f"{path}:54: limits.{section}.{other}: {other!r} names ")
    assert problem.endswith("occurs here twice")


def test_wrong_plan_and_wrong_pattern_are_shown_at_their_lines(tmp_path: Any) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(
        "limits:\n  plans:\n    gold: {publish: {messages: 5}}\n    free: {publish: {messages: x}}\n"
        "  namespaces:\n    'a**/b': gold\n    a/b: glod\n  tenants:\n    acme: {plan: fre}\n    '*x*': {}\n"
    )
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    assert sorted(re.sub(f"^{path}:", "", problem).split("'", 1)[0] for problem in refused.value.problems) == [
        "10: limits.tenants.*x*: ",
        "4: limits.plans.free.publish.messages: ",
        "6: limits.namespaces.a**/b: ",
        "7: limits.namespaces.a/b.plan: ",
        "9: limits.tenants.acme.plan: ",
    ]
    assert [problem.split("; ")[1] for problem in refused.value.problems if "is no plan" in problem] == [
        "did you mean 'free'?",
        "did you mean 'gold'?",
    ]


@pytest.mark.parametrize(
    "limits",
    [{"topics": {"a/b/c\x1b[2J\0": {}}}, {"namespaces": {"a/b\x1b": {}}}, {"tenants": {"a\n": {}}}, {"pro\x1bxy": {}}],
    ids=repr,
)
def test_no_line_holds_what_a_terminal_would_obey(tmp_path: Any, limits: Any) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump({"limits": limits}))
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    assert all(problem.isprintable() for problem in refused.value.problems)


@pytest.mark.parametrize(
    "mistake",
    ["listenn: 1\n", "admin: 0.0.0.0:1\n", "  tenants: {a: {publish: {messages: x}}}\n"],
    ids=["a key", "keys together", "a limit"],
)
def test_limits_read_beside_a_mistake_are_let_go_in_pieces(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    """Neither pydantic nor YAML's reader frees them in one call, for which the event loop would wait."""
    left: list[int] = []

    def living() -> int:
        return sum(type(each) is TopicLimits for each in gc.get_objects())

    before = living()

    class Noted(ReadSoFar):
        def let_go(self) -> None:
            left.append(living() - before)
            super().let_go()
            assert not self.values

    monkeypatch.setattr(model, "ReadSoFar", Noted)
    path = tmp_path / "sluice.yaml"
    topics = "".join(f"    t/n/{number}: {{publish: {{messages: 5}}}}\n" for number in range(2 * PIECE))
    path.write_text(f"limits:\n  topics:\n{topics}{mistake}")
    with pytest.raises(ConfigError):
        load_config(path, {})
    assert left == [2 * PIECE]


@pytest.mark.parametrize("end", ["", "x: [\n"], ids=["lines", "no YAML"])
def test_what_yaml_s_reader_has_no_use_for_is_let_go_in_pieces(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    text = "".join(f"k{number}: 1\n" for number in range(5)) + end
    freed: list[Any] = []
    monkeypatch.setattr(yaml_reader, "let_go", lambda tree: freed.append(str(tree)))
    lines = lines_of(text, [("k3",)])
    whole = {f"k{number}": "1" for number in range(5)}
    assert lines == ({} if end else {("k3",): 4})
    assert freed == ([str([whole, []])] if end else ["[]", str(whole)])


_LONG = "s3cret" * 60


@pytest.mark.parametrize(
    "text",
    [
        "admin_forward: {url: 'http://ops:s3cret@broker:8080'}",
        "admin_forward: {url: 'http://ops:s3cr/s3cret@broker:8080', token: s3cret}",
        "admin_forward: {url: 5, token: s3cret, caller: s3}",
        "admin_forward: {token: Bearer s3cret}",
        "admin_forward: {url: 'http://broker:8080', token: token:s3cret}",
        "otlp: {url: 'ops:my s3cret@collector:4318'}",
        f"otlp: {{url: 'http://ops:{_LONG}@collector:4318'}}",
        "broker: 'pulsar://ops:s3cret@broker:6650'",
        "broker: ['pulsar://broker:6650', 'pulsar://ops:s3cret@broker:6650']",
        f"broker: ['pulsar://broker:6650', 'pulsar://ops:{_LONG}@b:6650']",
        "allowed_brokers: ['ops:s3cret@broker']",
        "admin_access: {tokens: {ops: {access: write, token: s3cret}}}",
        "admin_access: {tokens: eyJhbGciOiJIUzI1NiJ9.s3cret.s3cret}",
        "authentication: {broker: {token_file: ' Bearer s3cret'}}",
        "authentication: {token: {secret_key: {s3cret: 5}}}",
        "access_log: [{address_key: s3cret}]",
    ],
)
def test_no_error_shows_a_secret(tmp_path: Any, text: str) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    assert "s3cret" not in "".join(refused.value.problems)
    variable, _, value = text.partition(": ")
    if value[:1] in "{[":
        return
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, {f"SLUICE_{variable.upper()}": value})
    assert "s3cret" not in "".join(refused.value.problems)


def test_an_error_shows_an_address_without_its_user(tmp_path: Any) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("broker: 'pulsar://ops:s3cret@broker:6650'\nlimits: {topics: {'persistent://a/b/c@d': 'x@y'}}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    assert refused.value.problems[0] == (
        f"{path}:1: broker: '…@broker:6650': it holds a user or a password; write it as pulsar://broker:6650"
    )
    assert "limits.topics.persistent://a/b/c@d: 'x@y': " in refused.value.problems[1]
