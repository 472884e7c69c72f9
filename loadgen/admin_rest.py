"""A client of admin REST addresses without TLS and tokens: Pulsar's, Sluice's, and what both answer alike.

The load tools, the benchmarks, the demo and the tests share it. Environment variables for HTTP proxies do not count.
(`sluice`'s own commands have `proxy.cli.admin_link`, which brings TLS, tokens and remedies for operators.)
"""

import http.client
import json
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from protocol.endpoint import EndpointError, EndpointForm

TIMEOUT_S = 30.0
_ADMIN = EndpointForm(
    ("http",), "http://127.0.0.1:8080", {"https": "the load tools speak no TLS; write http://HOST:PORT"}, is_url=True
)
_MOST_REDIRECTS = 5


class AdminRestError(Exception):
    """Nobody answered, or the answer was a refusal; one line.

    Args:
        text: Names the request.
        status: Of the refusal; None if nobody answered.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class AdminRest:
    """One admin address.

    Args:
        admin_url: `http://HOST:PORT`.
        timeout_s: For connecting, and for each part of an answer.
    """

    def __init__(self, admin_url: str, timeout_s: float = TIMEOUT_S) -> None:
        self.admin_url = admin_url.rstrip("/")
        self._timeout_s = timeout_s

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The answer's JSON; None if it has no body. See `text`."""
        answer = self.text(method, path, body)
        return json.loads(answer) if answer else None

    def text(self, method: str, path: str, body: object = None) -> str:
        """The answer as it is. A broker that sends the request to the leader or the owner is obeyed.

        Args:
            method: Of HTTP.
            path: From `/` on.
            body: Sent as JSON; None: none is sent.

        Raises:
            AdminRestError: If nobody answers, or the answer is a refusal.
        """
        url, wanted = self.admin_url + path, f"{method} {self.admin_url}{path}"
        for _ in range(_MOST_REDIRECTS):
            status, location, answer = self._exchange(method, url, body, wanted)
            if status != HTTPStatus.TEMPORARY_REDIRECT:
                break
            url = location
        else:
            raise AdminRestError(f"{wanted}: redirected {_MOST_REDIRECTS} times, last to {url}", status)
        said = answer.decode(errors="replace")
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise AdminRestError(f"{wanted}: {status} {said.strip()[:500]}", status)
        return said

    def is_ready(self, path: str = "/readyz") -> bool:
        """Whether a health page says yes."""
        try:
            self.text("GET", path)
        except AdminRestError:
            return False
        return True

    def make_tenant(self, tenant: str) -> None:
        """Make a tenant on the standalone cluster."""
        self.call("PUT", f"/admin/v2/tenants/{tenant}", {"adminRoles": [], "allowedClusters": ["standalone"]})

    def make_namespace(self, namespace: str) -> None:
        """Make `tenant/name`."""
        self.call("PUT", f"/admin/v2/namespaces/{namespace}", {})

    def stats(self, topic: str) -> dict[str, Any]:
        """A topic's statistics."""
        found: dict[str, Any] = self.call("GET", f"/admin/v2/{topic_path(topic)}/stats")
        return found

    def _exchange(self, method: str, url: str, body: object, wanted: str) -> tuple[int, str, bytes]:
        try:
            endpoint, target = _ADMIN.split(url)
        except EndpointError as error:
            raise AdminRestError(f"{wanted}: {error}") from None
        data = None if body is None else json.dumps(body)
        headers = {"Accept": "*/*"} | ({} if data is None else {"Content-Type": "application/json"})
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=self._timeout_s)
        try:
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Location", ""), answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise AdminRestError(f"{wanted}: no answer: {error or type(error).__name__}") from error
        finally:
            connection.close()


def topic_path(topic: str) -> str:
    """A topic as paths name it: `persistent/tenant/namespace/topic`."""
    return topic.replace("://", "/", 1)


def wait_until(is_so: Callable[[], object], longest_s: float, pause_s: float = 0.05) -> bool:
    """Look every `pause_s` whether it is so; False if it is not within `longest_s`."""
    deadline = time.monotonic() + longest_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True
