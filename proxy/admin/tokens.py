"""The file of tokens that open the admin address: name → {access: read|write, token: …}."""

import hashlib
import hmac
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import structlog
import yaml

from proxy.config.model import ConfigError
from proxy.config.yaml_file import parse_yaml
from proxy.files import read_file

LONGEST_NAME = 100
SHORTEST = 16
LONGEST = 512
MOST_TOKENS = 1000
"""All of them are looked at for each request."""
_MOST_BYTES = 1024 * 1024
"""As many holders, each with the longest name and token, have half of it."""
ANONYMOUS = "anonymous"
"""The name of callers where no token is needed."""
_KEY = "admin_access.tokens"

Access = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who a token was given to, and what it opens."""

    name: str
    access: Access
    digest: bytes


class Tokens:
    """Those who hold a token. Only digests are kept.

    Args:
        path: The file.

    Raises:
        ConfigError: If it cannot be used, with every problem. No token is ever shown.
    """

    def __init__(self, path: Path) -> None:
        self._holders = read_tokens(path)

    def find(self, token: str) -> Holder | None:
        """Who holds `token`. How long it takes tells nothing of it: digests are compared, always all of them."""
        digest, found = _digest(token), None
        for holder in self._holders:
            if hmac.compare_digest(holder.digest, digest):
                found = holder
        return found


def read_tokens(path: Path) -> tuple[Holder, ...]:
    """The holders that a file names.

    Raises:
        ConfigError: With every problem, each naming key, file, holder and remedy.
    """
    values = _parsed(path)
    problems = [f"{_KEY}: {path}: {problem}" for problem in _problems(values)]
    if problems:
        raise ConfigError(problems)
    return tuple(Holder(name, entry["access"], _digest(entry["token"])) for name, entry in values.items())


def warn_if_others_read(path: Path, key: str) -> None:
    """A secret that other users of the machine can read gets a warning.

    No more than that, because Kubernetes mounts secrets so unless told otherwise, where nobody else is.
    """
    if path.stat().st_mode & stat.S_IROTH:
        structlog.get_logger().warning("others can read this secret: chmod o-r", key=key, file=str(path))


def _parsed(path: Path) -> Any:
    try:
        mode = path.stat().st_mode
        text = read_file(path, _MOST_BYTES)
    except OSError as error:
        raise ConfigError([f"{_KEY}: {path}: cannot be read: {error.strerror}"]) from None
    if mode & stat.S_IWOTH:
        raise ConfigError([f"{_KEY}: {path}: others can write it, and so give themselves access: chmod o-w"])
    warn_if_others_read(path, _KEY)
    try:
        return parse_yaml(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError([f"{_KEY}: {path}: {_without_content(error)}"]) from None


def _without_content(error: Exception) -> str:
    """What PyYAML says shows what stands around the mistake: here, a secret."""
    mark = getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}" if mark else ""
    return f"is not YAML{where}, or a name stands there twice"


def _problems(values: Any) -> Iterator[str]:
    if not isinstance(values, dict) or not values:
        yield "names nobody; write NAME: {access: read, token: TOKEN}, access: write for who may change something"
        return
    if len(values) > MOST_TOKENS:
        yield f"names {len(values)} holders, at most {MOST_TOKENS} are served"
        return
    seen: dict[str, str] = {}
    for name, entry in values.items():
        shown = str(name)[:LONGEST_NAME]
        yield from (f"{shown!r}: {problem}" for problem in _problems_of(name, entry))
        token = entry.get("token") if isinstance(entry, dict) else None
        if isinstance(token, str) and seen.setdefault(token, shown) != shown:
            yield f"{shown!r}: token: is that of {seen[token]!r}, too; give each its own"


def _problems_of(name: Any, entry: Any) -> Iterator[str]:
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        yield f"write the name as text in one line of 1 to {LONGEST_NAME} characters"
    if name == ANONYMOUS:
        yield "is the name of callers without a token; choose another"
    if not isinstance(entry, dict) or set(entry) != {"access", "token"}:
        yield "write {access: read, token: TOKEN}, these two keys and no other"
        return
    if entry["access"] not in get_args(Access):
        yield f"access: {str(entry['access'])[:50]!r}: is neither read nor write"
    if not _is_token(entry["token"]):
        yield (
            f"token: write text of {SHORTEST} to {LONGEST} ASCII characters without blanks; "
            "`openssl rand -hex 32` makes one"
        )


def _is_token(token: Any) -> bool:
    if not isinstance(token, str) or not SHORTEST <= len(token) <= LONGEST:
        return False
    return token.isascii() and token.isprintable() and " " not in token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
