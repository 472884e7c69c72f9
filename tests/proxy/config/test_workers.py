from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.config.model import ConfigError, load_config


def problems(folder: Path, values: dict[str, Any]) -> list[str]:
    file = folder / "sluice.yaml"
    file.write_text(yaml.safe_dump(values))
    try:
        load_config(file, {})
    except ConfigError as error:
        return error.problems
    return []


@pytest.mark.parametrize(
    ("section", "key"),
    [
        (
            {"limits": {"topics": {"t/n/x": {"publish": {"messages": 5, "mode": "reject"}}}}},
            "limits.topics.persistent://t/n/x.publish.mode",
        ),
    ],
)
def test_what_one_process_alone_can_count_is_refused_by_name_with_the_remedy(tmp_path, section, key) -> None:
    (problem,) = problems(tmp_path, {"workers": 2, **section})
    assert key in problem
    assert "workers: 1" in problem
    assert problems(tmp_path, {"workers": 1, **section}) == []


def test_everything_else_goes_with_several(tmp_path: Path) -> None:
    limits = {"topics": {"t/n/x": {"publish": {"messages": 5, "mode": "observe"}, "dispatch": {"messages": 5}}}}
    assert problems(tmp_path, {"workers": 2, "limits": limits}) == []
    bounds = {"max_producers_per_topic": 3, "connection_rate": "5/s", "subscribe_rate_per_consumer": "5/30s"}
    subscribes = {"namespaces": {"t/n": {"subscribe": "5/30s"}}}
    assert problems(tmp_path, {"workers": 2, "admission": bounds, "limits": subscribes}) == []


@pytest.mark.parametrize("count", [0, -1, 65])
def test_there_is_one_worker_at_least_and_a_bounded_number(tmp_path: Path, count: int) -> None:
    (problem,) = problems(tmp_path, {"workers": count})
    assert "workers" in problem
