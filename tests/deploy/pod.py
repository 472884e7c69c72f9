"""A container of the chart's pods on this machine: its root read-only, its volumes, user, environment and command.

The root is an overlay over this machine's, or over an image's. Needs root and a host of `tests.netns.hosts`.
"""

import http.client
import os
import secrets
import shlex
import socket
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from loadgen.real.process import TetheredProcess
from tests.netns.hosts import BROKER, SLUICE_FOR_CLIENTS, Hosts
from tests.waiting import wait_for

Manifest = Mapping[str, Any]
USER = 54321
"""A user that no passwd file has, as OpenShift gives it."""
GROUP = 10001
SLUICE = (str(Path(sys.executable).with_name("sluice")),)
"""The entry point of this machine's Sluice."""


@dataclass(frozen=True)
class Image:
    """What a container begins with: a root, an entry point, an environment."""

    root: Path
    entry: Sequence[str]
    env: Mapping[str, str]


THIS_MACHINE = Image(Path("/"), SLUICE, {"PATH": f"{Path(SLUICE[0]).parent}:/usr/local/bin:/usr/bin:/bin"})


class Pod:
    """The first container of a pod, running until the block ends.

    Args:
        spec: The pod's.
        objects: All objects; ConfigMaps come from these.
        files: The files of Secrets, by their names.
        folder: For volumes and output.
        hosts: The pod's host, and the brokers'.
        image: Default: this machine.
    """

    def __init__(
        self,
        spec: Manifest,
        objects: Sequence[Manifest],
        files: Mapping[str, Mapping[str, str]],
        folder: Path,
        hosts: Hosts,
        *,
        image: Image = THIS_MACHINE,
    ) -> None:
        self.container = spec["containers"][0]
        self.folder = folder
        self._spec = spec
        self._image = image
        self._hosts = hosts
        self._contents = {
            ("configMap", each["metadata"]["name"]): each["data"] for each in objects if each["kind"] == "ConfigMap"
        } | {("secret", name): of_secret for name, of_secret in files.items()}
        self.output = folder / "output"
        (folder / "volumes").mkdir(parents=True)
        self._volumes = {volume["name"]: self._volume(volume) for volume in spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            if mount["name"] not in self._volumes:  # a claim of each replica
                self._volumes[mount["name"]] = self._volume({"name": mount["name"]})
        self._process: TetheredProcess | None = None

    def _volume(self, volume: Manifest) -> Path:
        path: Path = self.folder / "volumes" / volume["name"]
        path.mkdir(mode=0o755)
        if "configMap" in volume:
            self.write(path, self._contents["configMap", volume["configMap"]["name"]], 0o644)
        elif "secret" in volume:
            self.write(path, self._contents["secret", volume["secret"]["secretName"]], volume["secret"]["defaultMode"])
        else:  # emptyDir or a claim
            os.chown(path, 0, GROUP)
            path.chmod(0o2775)
        return path

    def write(self, volume: Path, files: Mapping[str, str], mode: int = 0o644) -> None:
        """Write a volume's files as the kubelet does: a folder of each version, and a link that is replaced."""
        version = volume / f"..{secrets.token_hex(4)}"
        version.mkdir(mode=0o755)
        for name, text in files.items():
            (version / name).write_text(text)
            (version / name).chmod(mode)
            os.chown(version / name, 0, GROUP)
            if not (volume / name).is_symlink():
                (volume / name).symlink_to(f"..data/{name}")
        (volume / "..new").symlink_to(version.name)
        (volume / "..new").rename(volume / "..data")

    def share(self, name: str, folder: Path) -> None:
        """Have a claim's folder in place of a new one; before the container starts."""
        if name in self._volumes:
            if not folder.exists():
                self._volumes[name].rename(folder)
            self._volumes[name] = folder

    def volume(self, name: str) -> Path:
        """Return the folder of a volume."""
        return self._volumes[name]

    def __enter__(self) -> Self:
        setup = self.folder / "setup.sh"
        setup.write_text(self._script())
        command = self._hosts.command("sluice", "unshare", "--mount", "bash", "-e", str(setup))
        self._process = TetheredProcess(command, self.output)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()

    def _script(self) -> str:
        root = self.folder / "root"
        mounts = []
        for mount in self.container["volumeMounts"]:
            path = f"{root}{mount['mountPath']}"
            mounts += [f"mkdir -p {path}", f"mount --bind {self._volumes[mount['name']]} {path}"]
            if mount.get("readOnly"):
                mounts += [f"mount -o remount,ro,bind {path}"]
        security = self.container["securityContext"]
        words = [*self.container.get("command", self._image.entry), *self.container.get("args", ())]
        layer = self.folder / "layer"
        aliases = [f"{each['ip']} {' '.join(each['hostnames'])}" for each in self._spec.get("hostAliases", ())]
        hosts = "\\n".join([f"127.0.0.1 localhost {socket.gethostname()}", f"{BROKER} broker broker-2", *aliases, ""])
        layers = f"lowerdir={self._image.root},upperdir={layer}/up,workdir={layer}/work"
        return "\n".join(
            [
                f"mkdir {layer} {root}",
                f"mount -t tmpfs none {layer}",
                f"mkdir {layer}/up {layer}/work",
                f"mount -t overlay overlay -o {layers} {root}",
                *([f"chmod 755 {root}/root"] if self._image.root == Path("/") else []),
                f"printf '{hosts}' >{root}/etc/hosts",
                f"mount --rbind /proc {root}/proc",
                f"mount --rbind /dev {root}/dev",
                *mounts,
                *([f"mount -o remount,ro {root}"] if security["readOnlyRootFilesystem"] else []),
                "cd /",
                "exec " + shlex.join(self._inside(*words)),
                "",
            ]
        )

    def _inside(self, *words: str) -> list[str]:
        """A command as the container has it: root, user and environment."""
        environment = {**self._image.env, "HOME": "/"} | {
            each["name"]: each.get("value", f"pod-{os.getpid()}") for each in self.container.get("env", ())
        }
        user = ["setpriv", "--reuid", str(USER), "--regid", "0", "--groups", str(GROUP)]
        nothing_more = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        given = [f"{key}={value}" for key, value in environment.items()]
        return ["chroot", str(self.folder / "root"), *user, *nothing_more, "env", "-i", *given, *words]

    def run(self, *words: str) -> str:
        """Run a command in the container as `kubectl exec` and hooks do; returns what it says. It may not fail."""
        assert self._process is not None
        command = ["nsenter", "--target", str(self._process.pid), "--mount", "--net", *self._inside(*words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def says(self) -> str:
        """Return the output so far."""
        return self.output.read_text()

    def stop(self) -> int:
        """End it as the kubelet does; returns its exit code."""
        assert self._process is not None
        return self._process.stop(self._spec["terminationGracePeriodSeconds"])

    def wait(self, longest_s: float) -> int | None:
        """Wait for its end; returns its exit code."""
        wait_for(lambda: self.exit_code is not None, longest_s, evidence=self.says, pause_s=0.2)
        return self.exit_code

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        assert self._process is not None
        return self._process.exit_code

    def passes(self, kind: str) -> bool:
        """Whether a probe of the container passes now; a container that has ended passes none."""
        if self.exit_code is not None:
            pytest.fail(self.says())
        probe = self.container[f"{kind}Probe"]["httpGet"]
        return self.get(probe["port"], probe["path"])[0] == 200

    def get(self, port_name: str, path: str, *, token: str = "", by_tls: bool = False) -> tuple[int, str]:
        """Ask a port of the container from another host; the status is 0 if it does not answer."""
        port = {each["name"]: each["containerPort"] for each in self.container["ports"]}[port_name]
        with self._hosts.on("client"):
            connection = http.client.HTTPConnection(SLUICE_FOR_CLIENTS, port, timeout=10)
            if by_tls:
                context = ssl._create_unverified_context()
                connection = http.client.HTTPSConnection(SLUICE_FOR_CLIENTS, port, timeout=10, context=context)
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            except OSError:
                return 0, ""
            finally:
                connection.close()
