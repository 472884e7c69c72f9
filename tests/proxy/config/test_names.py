"""A limit is of the very name that is written, or the configuration is refused; never of another name."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.admin.routes.policies import read_set
from proxy.config.limits import Limits
from proxy.config.model import Config, ConfigError, load_config
from proxy.policies.bodies import BodyError

LIMIT = "{publish: {messages: 5}}"
TURNED = (
    *("007", "no", "1_000", "010", "0x1F", "12:30", "1.10", "null", ".5", "2026-11-28", "=", "on", "yes", "1e3", "-0"),
    *(".inf", "0b11", "1:30:00", "true", "5.", "2026-11-28T10:00:00", "1:1", "0o17", "y", "NULL", ".NaN"),
)
"""Names of tenants that YAML 1.1 reads as something else."""
_NAMES = st.sampled_from(TURNED) | st.from_regex(
    r"[-=:.\w]{1,12}", fullmatch=True, alphabet=st.characters(codec="ascii")
)
_WAYS = st.sampled_from(
    [
        "limits: {{tenants: {{{0}: " + LIMIT.replace("{", "{{").replace("}", "}}") + "}}}}",
        "limits:\n  tenants:\n    {0}:\n      publish:\n        messages: 5\n",
        "limits:\n  tenants:\n    ? {0}\n    : publish: {{messages: 5}}\n",
        "limits: {{tenants: {{&x {0}: {{publish: {{messages: 5}}}}}}}}",
    ]
)
_WRITINGS = st.sampled_from(["{0}", "'{0}'", '"{0}"', "!!str {0}", "!!int {0}", "! {0}"])


def tenants_of(path: Path, text: str) -> list[str] | None:
    """The tenants with a limit; None if the file is refused."""
    path.write_text(text)
    try:
        return list(load_config(path, {}).limits.tenants)
    except ConfigError:
        return None


@given(name=_NAMES, way=_WAYS, writing=_WRITINGS)
def test_a_limit_is_of_the_name_as_written_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, way: str, writing: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "names.yaml"
    assert tenants_of(path, way.format(writing.format(name))) in ([name], None)


@given(name=_NAMES)
@example("0012")
def test_a_member_of_a_group_is_the_name_as_written_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "members.yaml"
    path.write_text(f"limits: {{resource_groups: {{g: {{publish: {{messages: 5}}, tenants: [{name}]}}}}}}")
    try:
        assert load_config(path, {}).limits.resource_groups["g"].tenants == (name,)
    except ConfigError:
        return


@pytest.mark.parametrize("name", TURNED)
def test_a_name_that_yaml_turns_is_taken_without_quotes(tmp_path: Path, name: str) -> None:
    path = tmp_path / "sluice.yaml"
    assert tenants_of(path, f"limits: {{tenants: {{{name}: {LIMIT}}}}}") == [name]
    variable = {"SLUICE_LIMITS__TENANTS": f"{{{name}: {LIMIT}}}"}
    assert list(load_config(None, {}, variable).limits.tenants) == [name]


def test_names_that_yaml_takes_for_one_are_two(tmp_path: Path) -> None:
    text = f"limits: {{tenants: {{7: {LIMIT}, 07: {LIMIT}, 0x7: {LIMIT}, no: {LIMIT}, false: {LIMIT}}}}}"
    assert tenants_of(tmp_path / "sluice.yaml", text) == ["7", "07", "0x7", "no", "false"]


@pytest.mark.parametrize("text", [f"{{acme: {LIMIT}, 'acme': {LIMIT}}}", f"{{acme: {LIMIT}, !!str acme: {LIMIT}}}"])
def test_a_name_that_is_written_twice_is_refused(tmp_path: Path, text: str) -> None:
    assert tenants_of(tmp_path / "sluice.yaml", f"limits: {{tenants: {text}}}") is None


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        *(("010", "without 0 before"), ("0x1F", "decimal digits"), ("5:30", "decimal digits")),
        *(("1_000", "decimal digits"), ("'1,000'", "decimal digits"), ("1e3", "500, 500/s"), (".5", "500, 500/s")),
        *(("+5", "500, 500/s"), ("-5", "500, 500/s"), ("yes", "500, 500/s"), ("010/s", "without 0 before")),
        *(("5/010s", "500, 500/s"), ("0o17", "decimal digits"), ("''", "500, 500/s")),
        *(("", "nothing is written here"), ("null", "nothing to YAML"), ("~", "nothing to YAML")),
        ("1,000", "write a number without commas"),
    ],
)
@pytest.mark.parametrize("key", ["messages", "bytes"])
def test_a_number_has_one_form_or_is_refused_with_it(tmp_path: Path, key: str, written: str, remedy: str) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(f"limits:\n  tenants:\n    acme: {{publish: {{{key}: {written}}}}}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    assert refused.value.problems[0].startswith(f"{path}:3: limits.tenants.acme.publish.")
    assert remedy in refused.value.problems[0]


@pytest.mark.parametrize("written", ["010", "0x1F", "1_000", "5:30", "7.0", "1e3", "+5", "on", "null"])
@pytest.mark.parametrize("key", ["max_connections", "linger", "publish.hold_total", "access_log.rotate_size"])
def test_no_number_is_taken_for_another(tmp_path: Path, key: str, written: str) -> None:
    path = tmp_path / "sluice.yaml"
    section, _, last = key.rpartition(".")
    path.write_text(f"{section}: {{{last}: {written}}}" if section else f"{key}: {written}")
    if written == "7.0" and key != "max_connections":
        load_config(path, {})
        return
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    assert f"{path}:1: {key}: " in refused.value.problems[0]


@pytest.mark.parametrize(
    "text",
    [
        "limits:\n  tenants:\n    acme:\n      publish:\n",
        "limits: {tenants: {acme: {publish: ~}}}",
        "limits: {tenants: {acme: }}",
        "limits: {tenants: }",
        "limits:\n",
        "fleet: null",
        "metrics:",
        "limits: {resource_groups: {g: {tenants: [null]}}}",
        "blocks: [{role: }]",
    ],
)
def test_a_key_that_holds_nothing_is_no_default(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="leave the key out for its default") as refused:
        load_config(path, {})
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize(("written", "value"), [("true", True), ("True", True), ("false", False), ("FALSE", False)])
def test_a_truth_value_is_true_or_false(tmp_path: Path, written: str, value: Any) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(f"dispatch: {{preciseDispatcherFlowControl: {written}}}")
    assert load_config(path, {}).dispatch.preciseDispatcherFlowControl is value


@pytest.mark.parametrize("written", ["yes", "no", "on", "off", "y", "n", "1", "0", "t", "'true '"])
def test_other_words_for_it_are_refused(tmp_path: Path, written: str) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(f"dispatch: {{preciseDispatcherFlowControl: {written}}}")
    with pytest.raises(ConfigError, match="true or false belongs here"):
        load_config(path, {})
    variable = {"SLUICE_DISPATCH__PRECISEDISPATCHERFLOWCONTROL": written.strip("'")}
    with pytest.raises(ConfigError, match="true or false belongs here"):
        load_config(None, {}, variable)


def test_a_word_that_yaml_takes_for_a_truth_value_is_a_word(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("proxy_protocol: {mode: off}\nproxy_id: no\n")
    config = load_config(path, {})
    assert (config.proxy_protocol.mode, config.proxy_id) == ("off", "no")


@pytest.mark.parametrize("section", ["tenants", "namespaces", "topics", "roles", "addresses", "resource_groups"])
@pytest.mark.parametrize("name", [7, 1.5, True, None])
def test_a_name_is_never_made_of_another_type(section: str, name: Any) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate({section: {name: {"publish": {"messages": 5}}}})


@pytest.mark.parametrize("member", ["tenants", "namespaces"])
@pytest.mark.parametrize("name", [12, 1.10, True])
def test_a_number_of_json_is_no_name(member: str, name: Any) -> None:
    body = {"limits": {"resource_groups": {"g": {"publish": {"messages": 5}, member: [name]}}}}
    with pytest.raises(BodyError, match=rf"limits\.resource_groups\.g\.{member}\.0: .*text belongs here"):
        read_set(msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ('{"limits": {"tenants": {"acme": {"publish": {"messages": 5}}, "acme": {}}}}', "acme"),
        ('{"limits": {"tenants": {"acme": {"publish": {"messages": 5, "messages": 100000}}}}}', "messages"),
        ('{"limits": {}, "limits": {"roles": {}}}', "limits"),
        (r'{"limits": {"roles": {"a": {}, "\u0061": {}}}}', "a"),
    ],
)
def test_a_key_of_json_stands_once(body: str, key: str) -> None:
    with pytest.raises(BodyError, match=f"'{key}': this key occurs twice in one object; leave one out"):
        read_set(body.encode())


def test_what_is_written_by_a_yaml_library_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    names = {name: {"publish": {"messages": 5}} for name in TURNED}
    assert tenants_of(path, yaml.safe_dump({"limits": {"tenants": names}}, sort_keys=False)) == list(TURNED)


def test_without_a_file_there_are_no_names() -> None:
    assert load_config(None, {}) == Config()
