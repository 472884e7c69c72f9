"""As much of Kubernetes' API as Spark's driver asks for: pods that it makes run here, as processes of this machine."""

import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.deploy.manifests import ROOT

_READY = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}


class KubernetesApi:
    """Serves at loopback until the block ends.

    Args:
        folder: For the output of the executors.
        path: The PATH of executors: Python and Java.

    Attributes:
        url: Its address.
        pods: The pods that were made, the driver's first.
    """

    def __init__(self, driver: str, folder: Path, path: str) -> None:
        self._folder, self._path = folder, path
        self.pods: list[dict[str, Any]] = [
            {"metadata": {"name": driver, "uid": "driver", "resourceVersion": "1"}, "spec": {}, "status": _READY}
        ]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_ending = threading.Event()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked = urlsplit(self.path)
                if "Upgrade" in self.headers:  # the client falls back from a web socket to a stream
                    self.send_error(503)
                    return
                if "watch=" in asked.query:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    api._is_ending.wait()
                    self.close_connection = True
                    return
                name = asked.path.rpartition("/")[2]
                named_pod = next((pod for pod in api.pods if pod["metadata"]["name"] == name), None)
                pods = api.pods[:1] if "fieldSelector=" in asked.query else api.pods[1:]
                self.say(named_pod or {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods})

            def do_POST(self) -> None:
                made = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                made["metadata"] |= {"uid": f"uid-{len(api.pods)}", "resourceVersion": "1"}
                if self.path.endswith("/pods"):
                    made["status"] = _READY
                    api.pods.append(made)
                    api._start(made)
                self.say(made)

            def do_PATCH(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                self.say({"kind": "ConfigMap", "metadata": {}})

            do_PUT = do_PATCH  # noqa: N815

            def do_DELETE(self) -> None:
                self.do_PATCH()

            def say(self, answer: dict[str, Any]) -> None:
                body = json.dumps({"apiVersion": "v1", "kind": "Pod", **answer}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _start(self, pod: dict[str, Any]) -> None:
        """Run the image's entry point as the container has it."""
        (container,) = pod["spec"]["containers"]
        environment = {each["name"]: each.get("value", "127.0.0.1") for each in container["env"]}
        environment["SPARK_EXECUTOR_POD_NAME"] = pod["metadata"]["name"]
        environment["PATH"] = self._path
        with (self._folder / f"executor-{len(self._processes)}").open("wb") as output:
            command = [str(ROOT / "deploy/compliance-entrypoint"), *container["args"]]
            self._processes.append(
                subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=self._folder)
            )

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._server.shutdown()
        self._server.server_close()
        for process in self._processes:
            process.kill()
            process.wait()
