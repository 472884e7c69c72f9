"""Every operation of the OpenAPI page, asked for what the page allows and for what it does not.

By Schemathesis, as a process of its own: what it warns of is none of this one's.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.proxy.live_admin import UNHURRIED, live_admin

_SAME = ["--phases", "examples,coverage", "--generation-deterministic"]
"""Several thousand requests at the bounds of what the page allows."""
_OTHERS = ["--max-examples", "8"]
"""Eight generated requests for each operation, after those at the bounds, and calls that follow from answers."""
_SETTINGS = Path(__file__).with_name("schemathesis.toml")
_LIMITS = {
    "namespaces": {"acme/shop": {"publish": {"messages": 9}}},
    "resource_groups": {"gold": {"dispatch": {"bytes": "10MB"}, "namespaces": ["acme/shop"]}},
}


@pytest.mark.slow
@pytest.mark.hypothesis  # Schemathesis is built on it: `make fuzz` runs this, too
def test_every_answer_is_one_that_the_page_tells(tmp_path: Path) -> None:
    """No 5xx, no status, header or body that is not on the page, and nothing wrong that is taken for right."""
    blocks = [{"address": "10.0.0.0/8"}]
    chosen = _SAME if settings().derandomize else _OTHERS
    with live_admin(tmp_path / "policies.db", admin_access=UNHURRIED, limits=_LIMITS, blocks=blocks) as live:
        process = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", _SETTINGS, "run"),
                *(f"{live.url}/sluice/openapi.json", *chosen),
                *("--no-color", "--warnings", "off"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        assert "Tested: 0" not in process.stdout
        assert live.state().changes > 100, "it does reach what is behind the handlers' checks"
