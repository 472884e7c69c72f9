"""What is exported is accepted by `sluice check`, and applied makes the same hold."""

import asyncio
import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings

from limiter.levels import Setting
from limiter.policies import Value
from limiter.rates import Limit, rate
from proxy.config.model import load_config
from proxy.policies.applying import Plan, plan
from proxy.policies.bodies import PublishRate, kept_as_pulsar_s
from proxy.policies.book import Book
from proxy.policies.differences import differences
from proxy.policies.exporting import as_yaml
from proxy.policies.group_body import OwnGroup, kept_as_own_group
from proxy.policies.key import Key, Kind, rate_key
from proxy.policies.layers import FilePolicies, Place
from proxy.policies.own_limits import to_set
from proxy.policies.place_names import read_place
from proxy.policies.policy_set import PolicySet, in_force, of_file
from tests.proxy.policies.layered import ANN, a_book, changes, effects, files

_EMPTY = FilePolicies({}, {}, {})
_SHOP: Place = ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")


def checked(text: str) -> PolicySet:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "limits.yaml"
        file.write_text(text, encoding="utf-8")
        config = load_config(file, {})
    return of_file(config.limits, config.admission.subscribe_rate_per_consumer)


def apply(book: Book, wanted: PolicySet) -> None:
    asyncio.run(book.change(planned(book, wanted).wanted, ANN))


def planned(book: Book, wanted: PolicySet) -> Plan:
    return plan(book, wanted, in_force(book))


@settings(max_examples=60, deadline=None)
@given(files(), changes(), files(), changes())
def test_what_is_exported_checked_and_applied_elsewhere_has_the_same_effect_on_every_topic_and_client(
    file, said, other_file, other_said
) -> None:
    with contextlib.ExitStack() as stack:
        books = [a_book(file, said), a_book(_EMPTY, {}), a_book(other_file, other_said)]
        for book in books:
            stack.callback(book.store.close)
        wanted = checked(as_yaml(in_force(books[0])))
        for book in books:
            apply(book, wanted)
            assert effects(book) == effects(books[0])
            assert not list(differences(wanted, in_force(book)))
            assert not planned(book, wanted).wanted, "the second time there is nothing left to do"


def test_what_the_proxys_own_file_limits_is_hidden_by_a_value_that_limits_nothing() -> None:
    file = FilePolicies({_SHOP: Value(Limit(rate(5)), "file")}, {"acme": "gold"}, {}, frozenset({"gold"}))
    book = a_book(file, {})
    made = planned(book, PolicySet(groups=frozenset({"gold"})))

    assert made.wanted == {
        rate_key(*_SHOP): kept_as_pulsar_s(PublishRate(-1, -1)),
        Key(Kind.ATTACHMENT, "tenant", "acme"): "",
    }
    assert made.hidden == ["limits.namespaces.acme/shop.publish", "resource group of tenant acme"]
    book.store.close()


def test_what_the_file_says_already_is_not_written_again() -> None:
    book = a_book(
        FilePolicies({_SHOP: Value(Limit(rate(5)), "file")}, {}, {}),
        {rate_key(*_SHOP): kept_as_pulsar_s(PublishRate(7))},
    )
    wanted = PolicySet({_SHOP: Value(Limit(rate(5)), "file")})

    assert planned(book, wanted).wanted == {rate_key(*_SHOP): None}
    book.store.close()


def test_blocks_and_whatever_else_is_kept_stay_as_they_are() -> None:
    key = Key(Kind.DYNAMIC, "", "dispatchThrottlingRateInMsg")
    book = a_book(_EMPTY, {key: "0"})
    assert planned(book, PolicySet()).wanted == {}
    book.store.close()


def test_a_group_s_limits_are_one_key_that_holds_both_directions() -> None:
    places: list[Place] = [("publish", Setting.RESOURCE_GROUP, "gold"), ("dispatch", Setting.RESOURCE_GROUP, "gold")]
    book = a_book(_EMPTY, {})
    wanted = PolicySet({place: Value(Limit(rate(5)), "file") for place in places}, groups=frozenset({"gold"}))

    made = planned(book, wanted)

    body: OwnGroup = {"publish": {"messages": 5}, "dispatch": {"messages": 5}}
    assert made == Plan({Key(Kind.GROUP, "", "gold"): kept_as_own_group(body)})
    book.store.close()


def test_groups_that_are_wanted_no_longer_are_taken_back_by_their_own_keys_alone() -> None:
    key = Key(Kind.GROUP, "", "gold")
    book = a_book(_EMPTY, {key: kept_as_own_group({"publish": {"messages": 5}})})

    assert planned(book, PolicySet()) == Plan({key: None})
    book.store.close()


def test_the_longest_names_that_can_be_set_come_back() -> None:
    part, name = "x" * 1024, '"é' * 500
    topic = f"non-persistent://{part}/{part}/{part}"
    names = {
        Setting.TENANT: part,
        Setting.TOPIC_OF_NAMESPACE: f"{part}/{part}",
        Setting.TOPIC: topic,
        Setting.SUBSCRIPTION: f"{name}@{topic}",
        Setting.RESOURCE_GROUP: name,
        Setting.ROLE: name,
    }
    places = [read_place("dispatch", setting, longest) for setting, longest in names.items()]
    limit = {"messages": 5}
    book, other = (a_book(_EMPTY, {}) for _ in range(2))
    for place in places:
        asyncio.run(book.change(to_set(book, place, limit), ANN))
    asyncio.run(book.change({Key(Kind.ATTACHMENT, "namespace", f"{part}/{part}"): name}, ANN))

    wanted = checked(as_yaml(in_force(book)))
    apply(other, wanted)

    assert set(wanted.values) == set(places)
    assert in_force(other).values.keys() == in_force(book).values.keys()
    assert not [*differences(in_force(book), in_force(other)), *differences(wanted, in_force(other))]
    book.store.close()
    other.store.close()
