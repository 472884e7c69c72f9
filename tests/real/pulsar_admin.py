"""The official pulsar-admin, from the same jars as the broker. Each call starts a JVM and takes 2-3 s."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from loadgen.real.jars import ProcessFailed, jars, java_command, require_java

_ADMIN_CLASS = "org.apache.pulsar.admin.cli.PulsarAdminTool"
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class PulsarAdmin:
    """pulsar-admin pointed at whatever answers Pulsar's admin REST: a broker, or Sluice.

    Attributes:
        admin_url: `http://HOST:PORT` of the admin REST.
        service_url: `pulsar://HOST:PORT`, for the few commands that want it.
    """

    admin_url: str
    service_url: str

    def run(self, *arguments: str) -> str:
        """Run `pulsar-admin ARGUMENTS`, return its output: `run("namespaces", "get-publish-rate", "public/default")`.

        Raises:
            ProcessFailed: If it ends with an error or not within a minute.
        """
        with tempfile.TemporaryDirectory(prefix="sluice-admin-") as folder:
            config = Path(folder) / "client.conf"
            config.write_text(f"webServiceUrl={self.admin_url}/\nbrokerServiceUrl={self.service_url}/\n")
            options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            command = java_command(require_java(), jars(), options, _ADMIN_CLASS)
            return _output([*command, str(config), *arguments])


def _output(command: list[str]) -> str:
    command_line = f"pulsar-admin {' '.join(command[command.index(_ADMIN_CLASS) + 2 :])}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise ProcessFailed(f"{command_line}: no answer within {_TIMEOUT_S} s", "") from late
    if done.returncode:
        raise ProcessFailed(f"{command_line}: ended with code {done.returncode}", (done.stdout + done.stderr).strip())
    return done.stdout.strip()
