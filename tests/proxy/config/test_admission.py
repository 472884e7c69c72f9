"""The bounds as they are written."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.admission_control import BoundName
from proxy.config.model import Config, ConfigError, load_config
from proxy.config.sections import AdmissionBounds


def load(path: Path, **bounds: Any) -> Config:
    path.write_text(yaml.safe_dump({"admission": bounds}))
    return load_config(path, {})


def test_without_a_word_only_the_generous_bound_of_connections_holds(tmp_path: Path) -> None:
    config = load(tmp_path / "sluice.yaml")
    assert not any(value for _, value in config.admission)
    assert config.max_connections == 10_000


def test_each_key_has_its_bound() -> None:
    assert {*AdmissionBounds.model_fields, "max_connections"} == {bound.value for bound in BoundName}


def test_pulsars_five_per_thirty_seconds_is_written_so(tmp_path: Path) -> None:
    config = load(tmp_path / "sluice.yaml", subscribe_rate_per_consumer="5/30s", max_producers_per_topic=3)
    assert config.admission.subscribe_rate_per_consumer == (5, 30_000_000_000)
    assert config.admission.max_producers_per_topic == 3


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("subscribe_rate_per_consumer", "5/30", "5/30s"),
        ("connection_rate", "10KB", "5/30s"),
        ("lookup_rate_per_address", 0, "leave the key out"),
        ("max_producers_per_topic", -1, "greater than or equal to 0"),
        ("max_producers", 1, "not known"),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_a_remedy(tmp_path: Path, key: str, value: Any, remedy: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "sluice.yaml", **{key: value})
    (problem,) = error.value.problems
    assert f"admission.{key}" in problem
    assert remedy in problem
