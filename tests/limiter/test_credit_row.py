"""The row of accounts, beside a plain list."""

import weakref

from hypothesis import given
from hypothesis import strategies as st

from limiter.permits import CreditAccount, CreditRow, CreditWindow, Permits
from limiter.usage import StreamUsage
from tests.limiter.asking import Asking

WINDOW = CreditWindow(1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7))))
def test_it_keeps_the_order_in_which_they_came(steps: list[tuple[bool, int]]) -> None:
    accounts = [CreditAccount(Asking().permits, WINDOW) for _ in range(8)]
    row, listed = CreditRow(), list[CreditAccount]()
    for comes, which in steps:
        account = accounts[which]
        if not comes:
            row.remove(account)
            listed = [member for member in listed if member is not account]
        elif account not in listed:
            row.add(account)
            listed.append(account)
        assert list(row) == listed
        assert row.first is (listed[0] if listed else None)
        assert [account.waits for account in accounts] == [account in listed for account in accounts]


def test_who_has_left_holds_nobody() -> None:
    """No circle of references stays: what is over is gone at once."""
    account, other, row = CreditAccount(Asking().permits, WINDOW), CreditAccount(Asking().permits, WINDOW), CreditRow()
    row.add(account)
    row.add(other)
    row.remove(account)
    row.remove(other)
    assert (account.before, account.after, other.before, other.after) == (None, None, None, None)


def test_permits_that_are_over_keep_nobody_who_keeps_them() -> None:
    """A stream knows its permits: were it the other way round, too, both would be gone only with a search for such."""

    class Stream:
        def note(self) -> None: ...

    stream = Stream()
    permits = Permits(StreamUsage(), lambda _permits: None, stream.note)
    known = weakref.ref(stream)
    permits.close()
    del stream
    assert known() is None
