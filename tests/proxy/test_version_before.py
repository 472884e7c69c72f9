"""This version beside the one before: it takes over and is taken over, and both are members of one fleet.

On request: `SLUICE_TEST_BEFORE=/path/of/the/other/bin/sluice pytest -m on_request tests/proxy/test_version_before.py`.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from tests.loadgen.standin.conftest import running_broker
from tests.proxy.test_taken_over import THIS, InPlace, Load, in_place
from tests.real.sluice_process import refused_lines
from tests.waiting import wait_for

BEFORE = os.environ.get("SLUICE_TEST_BEFORE", "")
FLEET = {"name": "front", "cycle": 0.05, "lease": 0.6}
PLACE = "/sluice/limits?direction=publish&setting=tenant&name=public"

pytestmark = [
    pytest.mark.on_request,
    pytest.mark.skipif(not BEFORE, reason="SLUICE_TEST_BEFORE does not name the sluice of the version before"),
]


@pytest.fixture
def broker() -> Iterator[str]:
    with running_broker() as (_, address):
        yield address


def set_limit(proxy: InPlace, messages: int) -> None:
    proxy.admin.call("PUT", PLACE, {"messages": f"{messages}/s"})


def holds(proxy: InPlace, messages: int) -> bool:
    return bool(proxy.admin.get_json(PLACE)["limit"] == {"messages": messages})


def test_versions_take_over_from_each_other(tmp_path: Path, broker: str) -> None:
    with in_place(tmp_path, broker) as proxy, Load(proxy) as load:
        for version, messages in ((THIS, 8000), ((BEFORE,), 7000), (THIS, 6000), ((BEFORE,), 5000), (THIS, 4000)):
            load.goes_on()
            set_limit(proxy, messages)
            proxy.take_over(version)
            assert holds(proxy, messages), "the store's policies are read"
        load.end()
        assert load.troubles == []
        assert set(load.sent) == set(load.received)
        audited = [each["who"] for each in proxy.admin.get_json("/sluice/audit")["changes"]]
        assert audited.count("takeover") == 5
        assert proxy.processes[-1].stop() == 0
    assert list(refused_lines(tmp_path / "access-log")) == []


def test_versions_are_members_of_one_fleet(tmp_path: Path, broker: str) -> None:
    with ExitStack() as opened:
        members = list[InPlace]()
        for index, version in enumerate((THIS, (BEFORE,), THIS, (BEFORE,))):
            folder = tmp_path / str(index)
            folder.mkdir()
            member = opened.enter_context(in_place(folder, broker, sluice=version, fleet=FLEET, proxy_id=f"m{index}"))
            members.append(member)
        for setter, member in product(range(4), members):
            set_limit(members[setter], 100 + setter)
            wait_for(partial(holds, member, 100 + setter))
        wait_for(lambda: max(member.admin.get_json("/sluice/fleet")["members_known"] for member in members) == 4)
        assert len({member.admin.get_json("/sluice/fleet")["coordinator"] for member in members}) == 1
