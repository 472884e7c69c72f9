import subprocess
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def service_url() -> Iterator[str]:
    """The stand-in broker's."""
    command = [sys.executable, "-m", "sluice", "broker", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            yield f"pulsar://{broker.stdout.readline().split()[-1]}"
        finally:
            broker.terminate()
