"""docs/sluice.yaml: valid as it stands, valid with everything taken in, and with each key of the top alone."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.config.model import Config, load_config
from proxy.config.reference import commented_yaml
from proxy.config.sources import variables

PAGE = Path(__file__).resolve().parents[3] / "docs/sluice.yaml"


def _taken_in(text: str) -> str:
    """As its head says: the first # of each line taken away."""
    return "".join(line.removeprefix("#") for line in text.splitlines(keepends=True))


def test_the_file_is_fresh() -> None:
    """Remedy: python -m proxy.config.reference --yaml > docs/sluice.yaml."""
    assert PAGE.read_text() == commented_yaml(), "docs/sluice.yaml is not as the code has it: run `make references`"


def test_as_it_stands_it_gives_the_defaults() -> None:
    assert load_config(PAGE, {}) == Config()


REACHED_BY_TLS = {"tls": {"listen": "pulsar+ssl://0.0.0.0:6651"}, "broker_tls": {"broker": "pulsar+ssl://broker:6651"}}
"""What a section needs beside it."""


def test_with_everything_taken_in_and_addresses_with_tls_it_is_valid(tmp_path: Path) -> None:
    values = yaml.safe_load(_taken_in(commented_yaml()))
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump(values | REACHED_BY_TLS["tls"] | REACHED_BY_TLS["broker_tls"]))
    assert load_config(path, {}).limits.topics


@pytest.mark.parametrize("key", Config.model_fields)
def test_each_key_of_the_top_is_valid_alone(tmp_path: Path, key: str) -> None:
    values = yaml.safe_load(_taken_in(commented_yaml()))
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump({key: values[key]} | REACHED_BY_TLS.get(key, {})))
    load_config(path, {})


def _values(section: Any, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(section, dict):
        return {above: section}
    return {key: value for name, inner in section.items() for key, value in _values(inner, (*above, name)).items()}


def test_every_key_is_there_and_those_with_a_default_show_it(tmp_path: Path) -> None:
    shown = yaml.safe_load(_taken_in(commented_yaml()))
    above = {key[:length] for key in _values(shown) for length in range(1, len(key) + 1)}
    of_rates = {key for key, _ in variables(Config).values() if key[0] == "limits" and len(key) > 3}
    assert {key for key, _ in variables(Config).values()} - above <= of_rates, "a rate's keys stand at the first only"
    path = tmp_path / "sluice.yaml"
    for key, value in shown.items():
        if not isinstance(value, dict) and getattr(Config(), key):
            path.write_text(yaml.safe_dump({key: value}))
            assert load_config(path, {}) == Config(), key


def test_every_key_has_words_above_it() -> None:
    lines = _taken_in(commented_yaml()).splitlines()
    keys = [at for at, line in enumerate(lines) if line and not line.lstrip().startswith("#")]
    assert len(keys) > 100
    bare = [lines[at] for at in keys if "# " not in lines[at - 1] and not lines[at - 1].endswith(":")]
    assert bare == []


def test_no_line_is_too_long_for_a_terminal() -> None:
    assert max(map(len, commented_yaml().splitlines())) <= 120
