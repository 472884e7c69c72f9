import pytest

from proxy.config.model import Config
from proxy.workers.worker import share_of


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_the_workers_parts_add_up_to_what_is_configured(workers: int) -> None:
    whole = Config.model_validate({"workers": workers, "publish": {"hold_total": "1MB"}, "max_lookups_in_flight": 100})
    parts = [share_of(whole, index) for index in range(workers)]
    assert sum(part.publish.hold_total for part in parts) == whole.publish.hold_total
    assert sum(part.max_lookups_in_flight for part in parts) == 100
    assert {part.broker for part in parts} == {whole.broker}
