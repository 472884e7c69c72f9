"""promtool checks the rules, and runs their unit tests."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.prometheus
_RULES = Path(__file__).resolve().parents[2] / "deploy/prometheus"


@pytest.mark.parametrize(
    "command", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml", "rules_days_test.yml")]
)
def test_promtool_accepts_rules_and_their_unit_tests(command):
    run = subprocess.run(["promtool", *command], cwd=_RULES, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
