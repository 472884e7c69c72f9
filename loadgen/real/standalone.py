"""A real Pulsar standalone broker, as a process of this machine on loopback."""

from pathlib import Path
from types import TracebackType
from typing import Self

from loadgen.real.broker_config import BrokerSettings, choose_ports, write_config
from loadgen.real.health import is_healthy, wait_ready
from loadgen.real.jars import jars
from loadgen.real.java import java_command, require_java
from loadgen.real.tethered_process import TetheredProcess

_MAIN_CLASS = "org.apache.pulsar.PulsarStandaloneStarter"
# The young generation holds minutes of garbage: with a small one the broker stands still for 0.1 s every few
# seconds (measured), and what arrives at once after such a pause looks like a limit exceeded.
_MEMORY = ["-Xms1g", "-Xmx1g", "-Xmn640m", "-XX:MetaspaceSize=256m", "-XX:MaxDirectMemorySize=1g", "-XX:+UseSerialGC"]


class StandaloneBroker:
    """A broker with its bookie and metadata store in one process; data and ports outlive `stop` and `kill`.

    Args:
        folder: For its data, configuration and `broker.log`; made if missing, never removed.
        settings: What differs from the default.
    """

    def __init__(self, folder: Path, settings: BrokerSettings | None = None) -> None:
        self.folder = folder
        self._settings = settings or BrokerSettings()
        self._ports = choose_ports(self._settings.port)
        self._process: TetheredProcess | None = None

    @property
    def service_url(self) -> str:
        """Where clients connect."""
        return f"pulsar://127.0.0.1:{self._ports.service}"

    @property
    def admin_url(self) -> str:
        """Where its admin REST listens."""
        return f"http://127.0.0.1:{self._ports.web}"

    def start(self, timeout_s: float = 120) -> None:
        """Start on the data that is there, and wait until it is healthy.

        Raises:
            RealPulsarError: If Java or the jars are missing, or it ends or is not healthy in time.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = TetheredProcess(self._command(), self.folder / "broker.log")
        self._process.name = "the broker"
        try:
            wait_ready(self._process, lambda: is_healthy(self._ports.web), timeout_s)
        except BaseException:
            self.kill()
            raise

    def check_running(self) -> None:
        """Raise ProcessFailed if the broker ended by itself."""
        if self._process is not None:
            self._process.check_running()

    def stop(self) -> None:
        """End it in order; it stays startable."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """SIGKILL: what a machine that fails looks like to its clients."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _command(self) -> list[str]:
        config = write_config(self.folder, self._ports, self._settings)
        options = [
            *_MEMORY,
            f"-Dpulsar.config.file={config}",
            f"-Dlog4j.configurationFile={self.folder / 'log4j2.xml'}",
        ]
        places = ["--metadata-dir", str(self.folder / "metadata")]
        places += ["--bookkeeper-dir", str(self.folder / "bookkeeper")]
        places += ["--bookkeeper-port", str(self._ports.bookie)]
        command = java_command(require_java(), jars(), options, _MAIN_CLASS)
        return [*command, "--config", str(config), "-nfw", "-nss", *places]
