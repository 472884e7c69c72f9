"""What a real proxy logs under chaos is judged compliant in both directions."""

import time
from functools import partial
from pathlib import Path

import pytest

from tests.compliance import chaos
from tests.compliance.chaos import Broker, configuration, loaded, side_by_side
from tests.compliance.real_log import judged_compliant
from tests.real.sluice_process import start_sluice

STEP_S = 2.5


@pytest.mark.slow
def test_the_log_of_a_proxy_under_chaos_is_judged_compliant(tmp_path: Path) -> None:
    """Limits flap, groups are swapped, clients come and go, the broker is killed, then the proxy itself."""
    broker = Broker(tmp_path)
    start = partial(start_sluice, tmp_path / "proxy", broker.url, configuration())
    sluice = start()
    try:
        with loaded(sluice.service_url, broker.address) as load:
            steps = chaos.flapping_limits, chaos.swapped_groups, chaos.reconnecting
            side_by_side(steps, sluice, broker, 2 * STEP_S)
            # Not beside another: a process of ours ends with the thread that started it.
            chaos.broker_killed(sluice, broker, STEP_S)
            assert sluice.process is not None
            sluice.process.kill()
        sluice = start()
        with loaded(sluice.service_url, broker.address) as again:
            chaos.flapping_limits(sluice, broker, STEP_S)
            time.sleep(STEP_S)
        sluice.stop()
    finally:
        assert sluice.process is not None
        sluice.process.kill()
        broker.kill()
    assert min(load.receipts, again.receipts) > 0
    assert judged_compliant(sluice.access_log, killed=1) == {"publish", "dispatch"}
