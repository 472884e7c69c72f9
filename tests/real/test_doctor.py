"""`sluice doctor --streams` with the official client between: what the broker has is what Sluice believes."""

import subprocess
import sys

import pulsar
import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.sluice_process import SluiceProcess

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits")]


def doctor(sluice: SluiceProcess, broker: StandaloneBroker, *more: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "sluice", "doctor", "--streams", "--admin", sluice.admin_url]
    command += ["--broker-admin", broker.admin_url, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines() or done.stderr.splitlines()


def test_what_clients_open_and_close_is_what_the_broker_has(
    sluice_proxy: SluiceProcess, real_broker: StandaloneBroker, client: pulsar.Client, topic: str
) -> None:
    producers = [client.create_producer(f"{topic}-{number}") for number in range(5)]
    consumers = [client.subscribe(f"{topic}-{number}", f"sub {number}", consumer_name="c") for number in range(5)]
    consumers += [client.subscribe(topic, "shared", pulsar.ConsumerType.Shared) for _ in range(3)]
    code, (line,) = doctor(sluice_proxy, real_broker, "--everywhere")
    assert code == 0
    assert line.startswith("no difference in 13 producers and consumers, on all topics ")
    for stream in (*producers[:2], *consumers[-2:]):
        stream.close()
    code, (line,) = doctor(sluice_proxy, real_broker)
    assert code == 0
    assert line.startswith("no difference in 9 producers and consumers, on the topics that the proxy knows of ")


def test_who_goes_around_the_proxy_is_found(
    sluice_proxy: SluiceProcess,
    real_broker: StandaloneBroker,
    client: pulsar.Client,
    direct_client: pulsar.Client,
    topic: str,
) -> None:
    client.create_producer(topic)
    direct_client.create_producer(topic, producer_name="direct")
    direct_client.subscribe(f"{topic}-elsewhere", "sub", consumer_name="direct")
    code, (line,) = doctor(sluice_proxy, real_broker)
    assert code == 3
    assert line.startswith(f"only the broker has producer 'direct' on {topic} (connection 127.0.0.1:")
    code, lines = doctor(sluice_proxy, real_broker, "--everywhere")
    assert (code, len(lines)) == (3, 2)
    assert lines[0].startswith(f"only the broker has consumer 'direct' of subscription 'sub' on {topic}-elsewhere ")


def test_who_cannot_look_says_so(sluice_proxy: SluiceProcess, client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic)
    command = [sys.executable, "-m", "sluice", "doctor", "--streams", "--admin", sluice_proxy.admin_url]
    command += ["--broker-admin", sluice_proxy.admin_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is the URL of a broker's web service" in done.stderr
