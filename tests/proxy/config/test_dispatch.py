"""The configuration's `dispatch`, by Pulsar's own names."""

from pathlib import Path

import pytest

from limiter.permits import DispatchRules
from proxy.config.model import ConfigError, load_config


def rules_of(folder: Path, section: str) -> DispatchRules:
    path = folder / "sluice.yaml"
    path.write_text(f"dispatch: {{{section}}}\n")
    return load_config(path, {}).dispatch.rules()


@pytest.mark.parametrize(
    ("section", "rules"),
    [
        ("", DispatchRules(is_precise=True, by_entry=False, spares_caught_up=False)),
        ("preciseDispatcherFlowControl: false", DispatchRules(is_precise=False)),
        ("preciseDispatcherFlowControl: true", DispatchRules(is_precise=True)),
        ("dispatchThrottlingOnBatchMessageEnabled: true", DispatchRules(is_precise=False, by_entry=True)),
        (
            "preciseDispatcherFlowControl: false, dispatchThrottlingOnBatchMessageEnabled: true",
            DispatchRules(is_precise=False, by_entry=True),
        ),
        ("dispatchThrottlingOnNonBacklogConsumerEnabled: false", DispatchRules(spares_caught_up=True)),
    ],
)
def test_each_key_does_what_pulsars_does_and_precise_is_the_default(
    tmp_path: Path, section: str, rules: DispatchRules
) -> None:
    assert rules_of(tmp_path, section) == rules


def test_both_ways_of_counting_at_once_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        rules_of(tmp_path, "preciseDispatcherFlowControl: true, dispatchThrottlingOnBatchMessageEnabled: true")
    (problem,) = error.value.problems
    assert problem.startswith(f"{tmp_path / 'sluice.yaml'}:1: dispatch: ")
    assert problem.endswith(
        "preciseDispatcherFlowControl and dispatchThrottlingOnBatchMessageEnabled exclude each other: one counts the "
        "messages of an entry, the other does not; set one of them to false"
    )


def test_a_key_that_pulsar_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dispatch\.precise: this key is not known"):
        rules_of(tmp_path, "precise: true")
