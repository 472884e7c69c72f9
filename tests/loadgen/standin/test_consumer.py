import pytest

from loadgen.standin.consumer import Consumer
from tests.loadgen.standin.doubles import RecordingOutlet


@pytest.mark.parametrize(
    ("permits", "writable", "is_ready"), [(1, True, True), (0, True, False), (-5, True, False), (1, False, False)]
)
def test_a_consumer_is_ready_with_permits_and_a_connection_that_takes_more(permits, writable, is_ready):
    outlet = RecordingOutlet()
    outlet.writable = writable
    assert Consumer(1, outlet, permits=permits).is_ready is is_ready
