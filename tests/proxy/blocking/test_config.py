"""The configuration's `blocks`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy import block_rules as blocks_config
from proxy.block_rules import Rule, read_key
from proxy.config.model import ConfigError, load_config
from tests.proxy.config.lines import without_line


def load(tmp_path: Path, blocks: Any) -> list[Rule]:
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump({"blocks": blocks}))
    return [block.rule() for block in load_config(path, {}).blocks]


def test_every_kind_can_be_blocked_from_the_start(tmp_path: Path) -> None:
    rules = load(
        tmp_path,
        [
            {"address": "192.0.2.0/24", "reason": "scanner"},
            {"role": "billing"},
            {"role": 7},
            {"topic": "acme/shop/orders"},
            {"producer": "p", "topic": "acme/shop/orders"},
            {"consumer": "c", "namespace": "acme/shop"},
            {"subscription": "s"},
        ],
    )
    assert rules == [
        Rule(read_key("address", "192.0.2.0/24"), "scanner", origin="file"),
        Rule(read_key("role", "billing"), origin="file"),
        Rule(read_key("role", "7"), origin="file"),
        Rule(read_key("topic", "acme/shop/orders"), origin="file"),
        Rule(read_key("producer", "p", topic="acme/shop/orders"), origin="file"),
        Rule(read_key("consumer", "c", namespace="acme/shop"), origin="file"),
        Rule(read_key("subscription", "s"), origin="file"),
    ]


@pytest.mark.parametrize(
    ("entry", "key", "problem"),
    [
        ({"address": "localhost"}, "blocks.0.address: 'localhost'", "write an address as 192.0.2.7"),
        ({"topic": "persistent://x"}, "blocks.0.topic: 'persistent://x'", "is not a topic name"),
        ({"topic": "a/b/__change_events"}, "blocks.0.topic: 'a/b/__change_events'", "is Pulsar's own topic"),
        ({"producer": "p", "namespace": "a/b\0"}, "blocks.0: ", "is not a namespace; write tenant/namespace"),
        ({"role": ""}, "blocks.0.role: ''", "write the role in one line"),
        ({"role": "r", "reason": "x" * 201}, "blocks.0.reason: ", "one line of at most 200 characters"),
        ({"user": "u"}, "blocks.0.user", "this key is not known here"),
        ({}, "blocks.0: {}", "write one of address, role, producer, consumer, subscription, topic"),
        ({"reason": "x"}, "blocks.0: ", "write one of address, role"),
        ({"role": "r", "address": "192.0.2.7"}, "blocks.0: ", "write one of address, role"),
        ({"namespace": "a/b"}, "blocks.0: ", "write one of address, role"),
        ({"role": "r", "topic": "t"}, "blocks.0: ", "a block of role has no topic or namespace"),
        ({"producer": "p", "namespace": "a"}, "blocks.0: ", "'a' is not a namespace; write tenant/namespace"),
    ],
)
def test_mistakes_are_told_with_file_key_value_and_remedy(
    tmp_path: Path, entry: dict[str, Any], key: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, [entry])
    (line,) = refused.value.problems
    path = tmp_path / "sluice.yaml"
    assert without_line(line, path).startswith(f"{path}: {key}")
    assert problem in line


def test_list_has_each_key_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"blocks: .*address '192\.0\.2\.7' is listed twice; leave one out"):
        load(tmp_path, [{"address": "192.0.2.7"}, {"address": "192.0.2.7/32", "reason": "again"}])


def test_the_list_is_bounded_and_the_error_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_config, "MOST_RULES", 50)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, [{"role": f"r{number}"} for number in range(51)])
    (line,) = refused.value.problems
    assert line.endswith("…: 51 entries; 50 are the most that can be")
    assert len(line) < 500
