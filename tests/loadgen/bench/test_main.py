"""The measuring tool delivers every byte through Sluice; what it measures is no test's business."""

import pytest

from loadgen.bench.__main__ import BARE, PEERS, measure
from loadgen.bench.ends import Load, send_frame


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer != BARE])
def test_every_form_of_sluice_delivers_everything(peer):
    rate, cost = measure(peer, Load(send_frame(1000), 3001))
    assert rate > 0
    assert cost >= 0
