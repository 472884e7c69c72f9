"""Callbacks for changes: in order, in slices, and no caller waits for them."""

import asyncio

from limiter.levels import Setting
from proxy.policies.keys import Principal, rate_key
from proxy.policies.service import NOTIFIED_AT_ONCE, ChangeNotifier
from proxy.policies.store import StoredChange

MOST_WAITING = 5 * NOTIFIED_AT_ONCE
_ANN = Principal("ann", "here")


def changes(first: int, count: int) -> list[StoredChange]:
    return [
        StoredChange(rate_key("publish", Setting.TOPIC, str(number)), None, "5")
        for number in range(first, first + count)
    ]


class Notified:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.notifier = ChangeNotifier(lambda change, _author, _at: self.names.append(change.key.name))

    def has(self, count: int) -> bool:
        return self.names == [str(number) for number in range(count)]


async def test_few_changes_notify_at_once_and_many_in_slices() -> None:
    notified = Notified()
    notified.notifier.notify(changes(0, 3), _ANN, (1, 1))
    assert notified.has(3)
    notified.notifier.notify(changes(3, 3 * NOTIFIED_AT_ONCE), _ANN, (2, 2))
    seen = [len(notified.names)]
    while not notified.has(3 + 3 * NOTIFIED_AT_ONCE):
        await asyncio.sleep(0)
        seen.append(len(notified.names))
    assert max(after - before for before, after in zip([3, *seen], seen, strict=False)) == NOTIFIED_AT_ONCE


async def test_later_changes_notify_after_earlier_ones() -> None:
    notified = Notified()
    notified.notifier.notify(changes(0, 50), _ANN, (1, 1))
    notified.notifier.notify(changes(50, 1), _ANN, (2, 2))
    assert notified.has(NOTIFIED_AT_ONCE)
    await notified.notifier.done()
    assert notified.has(51)
    notified.notifier.notify(changes(51, 1), _ANN, (3, 3))
    assert notified.has(52)


async def test_change_waits_for_room_when_very_many_wait(monkeypatch) -> None:
    monkeypatch.setattr("proxy.policies.service.MOST_WAITING", MOST_WAITING)
    notified = Notified()
    notified.notifier.notify(changes(0, 100), _ANN, (1, 1))
    await notified.notifier.room()
    assert not notified.has(100), "there is room: no change waited"
    notified.notifier.notify(changes(100, MOST_WAITING), _ANN, (1, 1))
    await notified.notifier.room()
    assert notified.has(100 + MOST_WAITING)
