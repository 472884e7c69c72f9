"""The few calls of the broker's admin REST that the tests need."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

TENANT = "sluice-test"


@dataclass(frozen=True, slots=True)
class PulsarRest:
    admin_url: str

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The answer's JSON, None where it has none; urllib.error.HTTPError for a refusal."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(self.admin_url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def ensure_namespace(self, name: str, tenant: str = TENANT) -> None:
        """Make `tenant/name` if it is not there; waits until topics can be made in it."""
        of_tenant = {"adminRoles": [], "allowedClusters": ["standalone"]}
        for path, body in ((f"tenants/{tenant}", of_tenant), (f"namespaces/{tenant}/{name}", {})):
            try:
                self.call("PUT", f"/admin/v2/{path}", body)
            except urllib.error.HTTPError as refusal:
                if refusal.code != HTTPStatus.CONFLICT:
                    raise

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        self.call("PUT", f"/admin/v2/{_path(topic)}/partitions", partitions)

    def create_topic(self, topic: str) -> None:
        self.call("PUT", f"/admin/v2/{_path(topic)}")

    def unload(self, topic: str) -> None:
        """Have the broker let go of it: it closes its producers and consumers, who come again."""
        self.call("PUT", f"/admin/v2/{_path(topic)}/unload")

    def stats(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/admin/v2/{_path(topic)}/stats")
        return found

    def entries(self, topic: str) -> int:
        """How many entries (a batch is one) the topic's ledgers took in."""
        return int(self.call("GET", f"/admin/v2/{_path(topic)}/internalStats")["entriesAddedCounter"])


def topic_name(namespace: str, local: str) -> str:
    return f"persistent://{TENANT}/{namespace}/{local}"


def _path(topic: str) -> str:
    return topic.replace("://", "/", 1)
