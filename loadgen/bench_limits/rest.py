"""The few calls of Pulsar's admin REST that measuring needs; the broker and Sluice answer them alike."""

import http.client
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from loadgen.bench_limits.errors import BenchError

TIMEOUT_S = 30
TENANT = "bench"


@dataclass(frozen=True, slots=True)
class Rest:
    """An admin REST at `http://HOST:PORT`."""

    admin_url: str

    def make_tenant(self) -> None:
        """Make the tenant that all namespaces here are in."""
        self._call("PUT", f"tenants/{TENANT}", {"adminRoles": [], "allowedClusters": ["standalone"]})

    def make_namespace(self, name: str) -> None:
        """Make `TENANT/name`."""
        self._call("PUT", f"namespaces/{TENANT}/{name}", {})

    def limit_publishing(self, namespace: str, messages: int) -> None:
        """Limit each topic of `TENANT/namespace` to so many messages a second."""
        rate = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": -1}
        self._call("POST", f"namespaces/{TENANT}/{namespace}/publishRate", rate)

    def limit_dispatch(self, namespace: str, messages: int = -1, size: int = -1) -> None:
        """Limit each topic of `TENANT/namespace` to so many messages and bytes a second; -1: to none."""
        rate = {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": size, "ratePeriodInSecond": 1}
        self._call("POST", f"namespaces/{TENANT}/{namespace}/dispatchRate", rate)

    def make_resource_group(self, name: str, dispatched: int, namespace: str) -> None:
        """Make a resource group that limits deliveries to so many messages a second; attach `TENANT/namespace`."""
        self._call("PUT", f"resourcegroups/{name}", {"dispatchRateInMsgs": dispatched})
        self._call("POST", f"namespaces/{TENANT}/{namespace}/resourcegroup/{name}")

    def connections(self, topic: str) -> set[str]:
        """From where, and since when, the topic's producers are connected."""
        stats = self._call("GET", f"{topic.replace('://', '/', 1)}/stats")
        return {f"{publisher['address']} {publisher['connectedSince']}" for publisher in stats["publishers"]}

    def is_ready(self, path: str) -> bool:
        """Whether a health page says yes."""
        try:
            return self._ask("GET", path)[0] == HTTPStatus.OK
        except BenchError:
            return False

    def _call(self, method: str, path: str, body: object = None) -> Any:
        status, text = self._ask(method, f"/admin/v2/{path}", body)
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            said = text.decode(errors="replace").strip()[:200]
            raise BenchError(f"{self.admin_url}: {method} {path} was answered with {status} {said}")
        return json.loads(text) if text else None

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        address = urlsplit(self.admin_url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT_S)
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise BenchError(f"{self.admin_url}: no answer to {method} {path}: {error}") from error
        finally:
            connection.close()
