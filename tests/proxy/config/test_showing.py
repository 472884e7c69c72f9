"""What is shown of a configuration makes the same one."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.model import Loaded, load
from proxy.config.reference import commented_yaml
from proxy.config.showing import shown

_NAMES = st.text("aon5:#'\"[]{}é😀,&*!|>%@~=-. ", min_size=1, max_size=8)
_RATES = st.sampled_from([500, "500/s", "30/min", "5/30s"])
_LIMITS = st.fixed_dictionaries(
    {"messages": _RATES},
    optional={
        "bytes": st.sampled_from(["10MB/s", 4096, "1.5KiB/h"]),
        "burst_messages": st.integers(1, 10**9),
        "mode": st.just("observe"),
    },
)
_BOTH = st.fixed_dictionaries({}, optional={"publish": _LIMITS, "dispatch": _LIMITS})
_BLOCK = st.fixed_dictionaries({"role": _NAMES}, optional={"reason": st.sampled_from(["", "a: b # c", "['", "500"])})
_BLOCKS = st.lists(_BLOCK, max_size=3, unique_by=lambda block: str(block["role"]))
_FILES = st.fixed_dictionaries(
    {},
    optional={
        "listen": st.sampled_from(["127.0.0.1:6650", "[::1]:0", "localhost:1"]),
        "metrics": st.just("127.0.0.1:9"),
        "proxy_id": st.sampled_from(["a", "500", "1.5", "null", "0x10", "2001-01-01"]),
        "linger": st.sampled_from([5, 1.5, "500ms", 0.25]),
        "allowed_brokers": st.lists(st.sampled_from(["a:1", "*.b:2"])),
        "allowed_broker_networks": st.lists(st.sampled_from(["10.0.0.0/8", "::1"])),
        "access_log": st.fixed_dictionaries({}, optional={"dir": st.sampled_from(["/a", "on", "a b#c", "."])}),
        "dispatch": st.fixed_dictionaries({}, optional={"preciseDispatcherFlowControl": st.booleans()}),
        "admin_access": st.fixed_dictionaries(
            {}, optional={"tls": st.just({"certificate": "c.pem", "key": "k.pem"}), "max_body": st.just("1MiB")}
        ),
        "blocks": _BLOCKS,
        "limits": st.fixed_dictionaries(
            {},
            optional={
                "proxy": _BOTH,
                "roles": st.dictionaries(_NAMES, _BOTH, max_size=3),
                "tenants": st.dictionaries(
                    st.sampled_from(["acme", "5", "1.5", "true", "null", "007", "12:30", "*"]), _BOTH, max_size=3
                ),
                "resource_groups": st.dictionaries(_NAMES, st.just({}) | st.just({"dispatch": {"bytes": 5}})),
            },
        ),
    },
)
_VARIABLES = st.fixed_dictionaries(
    {},
    optional={
        "SLUICE_PROXY_ID": st.sampled_from(["7", "b", "true"]),
        "SLUICE_MAX_CONNECTIONS": st.just("500"),
        "SLUICE_ACCESS_LOG__INTERVAL": st.just("2s"),
        "SLUICE_ALLOWED_BROKERS": st.just("c:3, d:4"),
        "SLUICE_LIMITS__ROLES": st.just("{x: {publish: {messages: 5}}}"),
        "SLUICE_DISPATCH__DISPATCHTHROTTLINGONBATCHMESSAGEENABLED": st.just("false"),
        "SLUICE_BLOCKS": st.just("[{role: r, reason: x}]"),
    },
)
_FLAGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {}, optional={"listen": st.just("127.0.0.1:7"), "access_log": st.just(Path("logs"))}
)


def loaded_from(folder: Path, text: str) -> Loaded:
    path = folder / "shown.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, {}, {})


@given(file=_FILES, variables=_VARIABLES, flags=_FLAGS, with_defaults=st.booleans())
def test_what_is_shown_makes_the_same_configuration(
    tmp_path_factory: pytest.TempPathFactory,
    file: dict[str, Any],
    variables: dict[str, str],
    flags: dict[str, Any],
    *,
    with_defaults: bool,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "sluice.yaml"
    path.write_text(yaml.safe_dump(file, allow_unicode=True), encoding="utf-8")
    first = load(path, flags, variables)
    again = loaded_from(folder, shown(first, with_defaults=with_defaults))
    assert again.config == first.config
    if not with_defaults:
        assert again.config.model_fields_set == first.config.model_fields_set


@pytest.mark.parametrize("with_defaults", [False, True])
def test_every_key_that_there_is_is_shown(tmp_path: Path, *, with_defaults: bool) -> None:
    """The page has each of them; its sections about TLS need addresses with TLS."""
    page = "".join(line.removeprefix("#") for line in commented_yaml().splitlines(keepends=True))
    values = yaml.safe_load(page) | {"listen": "pulsar+ssl://[::]:6651", "broker": "pulsar+ssl://broker:6651"}
    first = loaded_from(tmp_path, yaml.safe_dump(values))
    text = shown(first, with_defaults=with_defaults)
    assert "default\n" not in text
    assert loaded_from(tmp_path, text).config == first.config


def test_without_anything_every_default_is_shown_with_its_unit() -> None:
    nothing = load(None, {}, {})
    values = yaml.safe_load(shown(nothing, with_defaults=True))
    assert (values["admin_access"]["max_body"], values["access_log"]["interval"]) == ("64KiB", "1s")
    assert values["limits"]["topics"] == {}
    assert yaml.safe_load(shown(nothing, with_defaults=False)) is None


def test_a_source_with_a_strange_name_stays_on_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a\nlisten: 0.0.0.0:1"
    path.parent.mkdir(exist_ok=True)
    path.write_text("proxy_id: p")
    read = loaded_from(tmp_path, shown(load(path, {}, {}), with_defaults=False))
    assert read.config.listen[0].address == "127.0.0.1:6650"
