"""Calls of a real broker's admin REST, wherever in the cluster they have to be answered."""

import urllib.error
import urllib.request
from http import HTTPStatus

from loadgen.real.errors import RealPulsarError

_MOST_REDIRECTS = 5
_TIMEOUT_S = 30


def call(method: str, url: str) -> str:
    """The answer's text; a broker that sends us to the leader or the owner is obeyed, which urllib does for GET only.

    Raises:
        RealPulsarError: If nobody answers, or the answer is a refusal.
    """
    wanted = f"{method} {url}"
    for _ in range(_MOST_REDIRECTS):
        request = urllib.request.Request(url, method=method, headers={"Accept": "application/json"})  # noqa: S310 -- http only
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 -- as above
                return str(answer.read().decode())
        except urllib.error.HTTPError as refusal:
            with refusal:
                if refusal.code != HTTPStatus.TEMPORARY_REDIRECT:
                    raise RealPulsarError(f"{wanted}: {refusal.code} {refusal.read().decode()}") from None
                url = refusal.headers["Location"]
        except OSError as error:
            raise RealPulsarError(f"{wanted}: no answer: {error}") from error
    raise RealPulsarError(f"{wanted}: redirected {_MOST_REDIRECTS} times, last to {url}")
