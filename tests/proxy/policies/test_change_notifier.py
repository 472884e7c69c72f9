"""Who is told of changes: in order, in slices, and nobody waits for it."""

import asyncio

from limiter.levels import Setting
from proxy.policies.keys import Principal, rate_key
from proxy.policies.service import TOLD_AT_ONCE, ChangeNotifier
from proxy.policies.store import StoredChange

MOST_UNTOLD = 5 * TOLD_AT_ONCE
_ANN = Principal("ann", "here")


def changes(first: int, count: int) -> list[StoredChange]:
    return [
        StoredChange(rate_key("publish", Setting.TOPIC, str(number)), None, "5")
        for number in range(first, first + count)
    ]


class Told:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.telling = ChangeNotifier(lambda change, _who, _at_ns: self.names.append(change.key.name))

    def has(self, count: int) -> bool:
        return self.names == [str(number) for number in range(count)]


async def test_a_few_are_told_at_once_and_of_many_a_slice_at_a_time() -> None:
    told = Told()
    told.telling.tell(changes(0, 3), _ANN, 1)
    assert told.has(3)
    told.telling.tell(changes(3, 3 * TOLD_AT_ONCE), _ANN, 2)
    seen = [len(told.names)]
    while not told.has(3 + 3 * TOLD_AT_ONCE):
        await asyncio.sleep(0)
        seen.append(len(told.names))
    assert max(after - before for before, after in zip([3, *seen], seen, strict=False)) == TOLD_AT_ONCE


async def test_what_comes_later_is_told_later_however_little_it_is() -> None:
    told = Told()
    told.telling.tell(changes(0, 50), _ANN, 1)
    told.telling.tell(changes(50, 1), _ANN, 2)
    assert told.has(TOLD_AT_ONCE)
    await told.telling.done()
    assert told.has(51)
    told.telling.tell(changes(51, 1), _ANN, 3)
    assert told.has(52)


async def test_there_is_room_until_very_many_are_untold(monkeypatch) -> None:
    monkeypatch.setattr("proxy.policies.service.MOST_UNTOLD", MOST_UNTOLD)
    told = Told()
    told.telling.tell(changes(0, 100), _ANN, 1)
    await told.telling.room()
    assert not told.has(100), "there is room: nobody waited"
    told.telling.tell(changes(100, MOST_UNTOLD), _ANN, 1)
    await told.telling.room()
    assert told.has(100 + MOST_UNTOLD)
