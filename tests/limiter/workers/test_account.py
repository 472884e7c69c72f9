from limiter.workers.account import Account
from limiter.workers.letters import Passed
from limiter.workers.purse import Purse


def test_all_purses_pay_or_none() -> None:
    account, rich, poor = Account(1), Purse(1), Purse(2)
    rich.lend(10, None)
    poor.lend(3, None)
    account.purses = (rich, poor)
    assert not account.take(4, 1)
    assert rich.empty() == (10, 0)
    assert poor.take_used() == (0, 0)


def test_what_passed_is_told_once() -> None:
    account = Account(7)
    account.count(2, 5, 300, (4, 200))
    account.count(1, 1, 900, (1, 900))
    told = account.take_passed()
    assert (told.stream, told.entries, told.messages, told.size) == (7, 3, 6, 1200)
    assert (told.largest_messages, told.largest_size) == (4, 900)
    assert account.take_passed() == Passed(7, 0, 0, 0, 0, 0, [])
