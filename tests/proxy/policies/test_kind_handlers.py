"""What a service keeps besides limits."""

import asyncio
import contextlib

from limiter.policies import Policies
from proxy.policies.held import ValueBefore
from proxy.policies.keys import PolicyKey, PolicyKind, Principal
from proxy.policies.layers import FilePolicies
from proxy.policies.service import Around, PolicyService
from proxy.policies.store import Store

_KEY = PolicyKey(PolicyKind.BLOCK, "", "x")
_BODY = "{}"


class Notes:
    """Keeps whatever comes, and notes it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def before(self) -> tuple[int, int]:
        self.events.append("before")
        return 0, 0

    def check(self, _key: PolicyKey, kept: str | None) -> None:
        self.events.append(f"check {kept}")

    def load(self, _key: PolicyKey, kept: str) -> None:
        self.events.append(f"load {kept}")

    def held(self, _key: PolicyKey, _kept: str) -> list[ValueBefore]:
        return []

    def take(self, _key: PolicyKey, kept: str | None, _author: Principal) -> None:
        self.events.append(f"take {kept}")


def test_handler_checks_takes_and_loads_changes() -> None:
    first, second = Notes(), Notes()
    with contextlib.closing(Store(None)) as store:
        asyncio.run(_service(store, first).change({_KEY: _BODY}, Principal("ann", "")))
        _service(store, second)
    assert first.events == [f"check {_BODY}", f"told None {_BODY} ann", f"take {_BODY}"]
    assert second.events == [f"load {_BODY}"]


def test_limit_change_notifies_after_the_lines_before_it() -> None:
    notes = Notes()
    with contextlib.closing(Store(None)) as store:
        key = PolicyKey(PolicyKind.ATTACHMENT, "namespace", "acme/shop")
        asyncio.run(_service(store, notes).change({_KEY: _BODY, key: "gold"}, Principal("ann", "")))
    assert notes.events == [
        f"check {_BODY}",
        "before",
        "after",
        f"told None {_BODY} ann",
        f"take {_BODY}",
        "told None gold ann",
    ]


def _service(store: Store, notes: Notes) -> PolicyService:
    around = Around(
        notes.before,
        lambda _changes, _now: notes.events.append("after"),
        lambda change, author, _at_ns: notes.events.append(f"told {change.before} {change.after} {author.name}"),
        {PolicyKind.BLOCK: notes},
    )
    return PolicyService(Policies(), FilePolicies({}, {}, {}), store, around)


def test_changes_of_what_is_kept_so_are_counted() -> None:
    with contextlib.closing(Store(None)) as store:
        service = _service(store, Notes())
        assert asyncio.run(service.change({_KEY: _BODY}, Principal("ann", ""))) == 1
        assert asyncio.run(service.change({_KEY: _BODY}, Principal("ann", ""))) == 0
