"""What happens to fleets, all scenes that there are: twenty minutes, on request (`pytest -m on_request tests/real`)."""

from pathlib import Path

import pytest

from bench.harness import missed
from tests.real.fleet_scenes import JUDGED, SCENES, SUBJECT, Scene, judge
from tests.real.pulsar_cluster import PulsarCluster

pytestmark = [pytest.mark.real, pytest.mark.on_request]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_fleet_holds_a_limit_and_uses_it(cluster: PulsarCluster, tmp_path: Path, scene: Scene) -> None:
    sample = scene.alone(cluster, tmp_path)
    judged = {"violated": judge(tmp_path, [scene.name])[scene.name]}
    assert not missed([scene.row(JUDGED)], {scene.name: {SUBJECT: [{**sample, **judged}]}})
