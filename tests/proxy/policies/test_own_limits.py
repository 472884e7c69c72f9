import asyncio

from limiter.levels import Setting
from limiter.policies import Value
from limiter.rates import Limit, rate
from proxy.policies.book import Book
from proxy.policies.key import Key, Kind
from proxy.policies.layers import FilePolicies, Place
from proxy.policies.own_limits import to_set, to_take_back
from tests.proxy.policies.layered import ANN, a_book

_SHOP: Place = ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
_GOLD: Place = ("publish", Setting.RESOURCE_GROUP, "gold")
_GOLD_DISPATCH: Place = ("dispatch", Setting.RESOURCE_GROUP, "gold")
_FILE = FilePolicies({place: Value(Limit(rate(9)), "file") for place in (_SHOP, _GOLD)}, {}, {})
_EMPTY = FilePolicies({}, {}, {})


def messages(book: Book, place: Place) -> int | None:
    value = book.layers.policies.get(*place)
    return value.limit.messages.tokens if value and value.limit.messages else None


def change(book: Book, wanted: dict[Key, str | None]) -> None:
    asyncio.run(book.change(wanted, ANN))


def test_a_limit_is_set_hidden_by_nothing_and_taken_back_at_any_place() -> None:
    for place in (_SHOP, _GOLD):
        book = a_book(_FILE, {})
        change(book, to_set(book, place, {"messages": 5}))
        assert messages(book, place) == 5
        change(book, to_set(book, place, None))
        assert messages(book, place) is None
        change(book, to_take_back(book, place))
        assert messages(book, place) == 9
        book.store.close()


def test_the_other_direction_of_a_group_stays_as_it_was_whoever_wrote_it() -> None:
    key = Key(Kind.GROUP, "", "gold")
    book = a_book(_EMPTY, {key: '{"publishRateInMsgs":5}'})
    change(book, to_set(book, _GOLD_DISPATCH, {"messages": "30/min"}))
    assert (messages(book, _GOLD), messages(book, _GOLD_DISPATCH)) == (5, 30)
    change(book, to_take_back(book, _GOLD))
    assert (messages(book, _GOLD), messages(book, _GOLD_DISPATCH)) == (None, 30)


def test_a_group_ends_with_its_last_limit_unless_something_is_attached_to_it() -> None:
    book = a_book(_EMPTY, {})
    change(book, to_set(book, _GOLD, {"messages": 5}))
    assert book.groups() == {"gold"}
    change(book, to_take_back(book, _GOLD))
    assert book.groups() == set()

    change(book, {**to_set(book, _GOLD, {"messages": 5}), Key(Kind.ATTACHMENT, "tenant", "acme"): "gold"})
    change(book, to_take_back(book, _GOLD))
    assert book.groups() == {"gold"}
