"""Both ends, with the bare forwarder and Sluice between them: started once for all tests of the benchmark."""

from contextlib import ExitStack

import pytest

from bench.data_path.native import Native
from bench.data_path.proxies import BARE, BARE_PLAN, SLUICE, running, sluice_plan
from bench.data_path.stage import Stage
from bench.data_path.wire import LoopbackSink


@pytest.fixture(scope="session")
def native():
    return Native()


@pytest.fixture(scope="session")
def stage(native, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    plans = {plan.name: plan for plan in (BARE_PLAN, sluice_plan())}
    with ExitStack() as stack:
        sink = stack.enter_context(LoopbackSink())
        peers = {name: stack.enter_context(running(plan, folder, sink.port)) for name, plan in plans.items()}
        yield Stage(native, sink, peers, plans, 0.05, folder)


@pytest.fixture(params=[BARE, SLUICE])
def name(request):
    return request.param
