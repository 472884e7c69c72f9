"""A real broker for the session, a Sluice in front of it for each module.

A module says what its Sluice is started with in a dict `CONFIG` (the YAML file's content); modules without one share
one. With SLUICE_TEST_DIRECT=1
clients are given the broker's own address: what fails then fails without Sluice's help.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pulsar
import pytest

from loadgen.real.jars import available
from loadgen.real.standalone import BrokerSettings, StandaloneBroker, archive_classes
from tests.real.admin_calls import AdminCalls
from tests.real.cluster_proxy import PROPERTIES
from tests.real.pulsar_cluster import PulsarCluster
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.slow_scenarios import CONFIG as SLOW_CONFIG
from tests.real.slow_scenarios import SlowScenarios
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.traffic import quiet_client
from tests.short_lived import SHORT_LIVED

IS_DIRECT = bool(os.environ.get("SLUICE_TEST_DIRECT"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In one process: look at what is slow last; it has gone on beside the other tests by then."""
    if not hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(scope="session", autouse=True)
def short_lived_java() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED)
        if not available():
            archive_classes()
        yield


@pytest.fixture(scope="session")
def real_broker(short_lived_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneBroker]:
    settings = BrokerSettings(properties={"haProxyProtocolEnabled": "true"})  # a header may come first, and need not
    with StandaloneBroker(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def started_cluster(short_lived_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    if IS_DIRECT:
        pytest.skip("the brokers themselves have not the limits of Sluice (SLUICE_TEST_DIRECT)")
    with PulsarCluster(tmp_path_factory.mktemp("cluster"), PROPERTIES) as cluster:
        yield cluster


@pytest.fixture
def cluster(started_cluster: PulsarCluster) -> PulsarCluster:
    """Both of its brokers run, whatever the test before did to them."""
    for broker in started_cluster.brokers:
        if not broker.is_running:
            broker.start()
    return started_cluster


@pytest.fixture(scope="session")
def calls(short_lived_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCalls]:
    with AdminCalls(tmp_path_factory.mktemp("pulsar-admin") / "java.log") as calls:
        yield calls


@pytest.fixture(scope="session")
def rest(real_broker: StandaloneBroker) -> PulsarRest:
    return PulsarRest(real_broker.admin_url)


def sluice_or_broker(folder: Path, broker: StandaloneBroker, config: dict[str, Any]) -> SluiceProcess:
    if IS_DIRECT:
        return SluiceProcess(broker.service_url, broker.admin_url, folder, None)
    return start_sluice(folder, broker.service_url, config)


@pytest.fixture(scope="session")
def slow_scenarios(
    request: pytest.FixtureRequest,
    real_broker: StandaloneBroker,
    rest: PulsarRest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SlowScenarios | None]:
    """Begun with the session's first real test, if the session will come to look at them."""
    if not any(item.get_closest_marker("slow") for item in request.session.items):
        yield None
        return
    sluice = sluice_or_broker(tmp_path_factory.mktemp("slow"), real_broker, SLOW_CONFIG)
    with ExitStack() as clients:
        try:
            yield SlowScenarios(sluice, rest, clients)
        finally:
            # Before its clients: one whose bytes are not read would wait 30 s for the answer to its farewell.
            sluice.stop()


@pytest.fixture(scope="session")
def plain_sluice(
    real_broker: StandaloneBroker, slow_scenarios: SlowScenarios | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SluiceProcess]:
    """Without a configuration. It wants the slow scenarios for nothing but that they begin early."""
    sluice = sluice_or_broker(tmp_path_factory.mktemp("plain"), real_broker, {})
    try:
        yield sluice
    finally:
        sluice.stop()


@pytest.fixture(scope="module")
def sluice_proxy(
    request: pytest.FixtureRequest,
    real_broker: StandaloneBroker,
    slow_scenarios: SlowScenarios | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SluiceProcess]:
    """The module's Sluice, or that of all modules without a configuration."""
    config = getattr(request.module, "CONFIG", None)
    if config is None:
        yield request.getfixturevalue("plain_sluice")
        return
    sluice = sluice_or_broker(tmp_path_factory.mktemp("sluice"), real_broker, config)
    try:
        yield sluice
    finally:
        sluice.stop()


@pytest.fixture(scope="module")
def namespace(request: pytest.FixtureRequest, rest: PulsarRest) -> str:
    """A namespace of the module's own."""
    name: str = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")
    rest.ensure_namespace(name)
    return name


@pytest.fixture
def topic(request: pytest.FixtureRequest, namespace: str) -> str:
    """A topic of the test's own, in the module's namespace."""
    return topic_name(namespace, request.node.name.translate(str.maketrans("[]_", "---")))


@pytest.fixture
def client(sluice_proxy: SluiceProcess) -> Iterator[pulsar.Client]:
    """A client whose every byte goes through Sluice."""
    client = quiet_client(sluice_proxy.service_url)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def direct_client(real_broker: StandaloneBroker) -> Iterator[pulsar.Client]:
    """A client of the broker itself: the receiving end that a test measures at."""
    client = quiet_client(real_broker.service_url)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def needs_limits() -> None:
    if IS_DIRECT:
        pytest.skip("the broker itself has neither the limits nor the log of Sluice (SLUICE_TEST_DIRECT)")
