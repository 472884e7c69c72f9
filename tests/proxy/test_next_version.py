"""The next version, which is planted, follows this one in place, is refused its way back, and goes back by its copy."""

import json
import subprocess
import sys
from pathlib import Path

from adminrest.client import AdminError
from tests.loadgen.standin.conftest import running_broker
from tests.proxy.test_taken_over import THIS, InPlace, in_place
from tests.waiting import wait_for

NEXT = (
    sys.executable,
    "-c",
    """
import runpy
from proxy import limit_state
from proxy.policies import store

store._VERSION, limit_state.VERSION = 3, 2
store._STEPS = {2: ("ALTER TABLE policies ADD COLUMN unit TEXT", "CREATE TABLE schedules (name TEXT)")}
runpy.run_module("sluice", run_name="__main__")
""",
)
PLACE = "/sluice/limits?direction=publish&setting=tenant&name=public"


def test_next_version_follows_and_goes_back(tmp_path: Path) -> None:
    with running_broker() as (_, broker), in_place(tmp_path, broker) as proxy:
        store, copy = tmp_path / "policies.db", tmp_path / "policies.db.v2"
        set_limit(proxy, 8000)

        failing = proxy.start("--takeover", "--listen", proxy.address, "--listen", "192.0.2.1:6650", sluice=NEXT)
        wait_for(lambda: failing.exit_code == 1, evidence=proxy.lines)
        assert copy.exists(), "it has changed the store before it failed"
        wait_for(lambda: takes(proxy, 8000), evidence=proxy.lines)

        proxy.take_over(NEXT)
        assert limit_of(proxy) == 8000
        set_limit(proxy, 7000)

        before = proxy.start("--takeover", sluice=THIS)
        wait_for(lambda: before.exit_code == 1, evidence=proxy.lines)
        refused = before.log_path.read_text()
        command = f"restore {copy} {store} --replace"
        assert "it is of version 3, and this Sluice reads version 2; start that Sluice; or, without the" in refused
        assert f"`sluice {command}`" in refused
        wait_for(lambda: takes(proxy, 6000), evidence=proxy.lines)
        assert limit_of(proxy) == 6000

        later = next(each for each in proxy.processes if each.exit_code is None)
        assert later.stop() == 0
        subprocess.run([*THIS, *command.split()], check=True, capture_output=True)
        back = proxy.start()
        wait_for(lambda: proxy.admin.is_ready("/readyz"), evidence=proxy.lines)
        assert limit_of(proxy) == 8000, "as it was before the upgrade"
        wait_for(lambda: "limits begin with empty buckets" in back.log_path.read_text(), evidence=proxy.lines)
        events = [json.loads(line) for line in back.log_path.read_text().splitlines() if line.startswith("{")]
        (empty,) = [each for each in events if each["event"].startswith("limits begin with empty buckets")]
        assert empty["reason"] == "it is of version 2, and this Sluice reads version 1"


def set_limit(proxy: InPlace, messages: int) -> None:
    proxy.admin.call("PUT", PLACE, {"messages": f"{messages}/s"})


def limit_of(proxy: InPlace) -> int:
    return int(proxy.admin.get_json(PLACE)["limit"]["messages"])


def takes(proxy: InPlace, messages: int) -> bool:
    """Change the limit, and return whether the running process has the store again, and so takes the change."""
    try:
        set_limit(proxy, messages)
    except AdminError:
        return False
    return True
