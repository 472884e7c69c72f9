"""Calls over many values come in pieces."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import bulk
from proxy.bulk import PIECE, in_order, in_pieces, keys_of, let_go


@given(st.lists(st.integers(0, 50)), st.integers(1, 7))
def test_the_order_is_that_of_one_call(values: list[int], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "PIECE", piece)
        assert list(in_order(values)) == sorted(values)
        assert [each for each_piece in in_pieces(values) for each in each_piece] == values
        assert all(len(each_piece) <= piece for each_piece in in_pieces(values))


def test_no_call_sorts_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(values: Iterable[Any]) -> list[Any]:
        sorted_values = sorted(values)
        sizes.append(len(sorted_values))
        return sorted_values

    monkeypatch.setattr(bulk, "sorted", counted, raising=False)
    many = 3 * PIECE + 1
    assert list(in_order(range(many, 0, -1))) == list(range(1, many + 1))
    assert sizes == [PIECE, PIECE, PIECE, 1]


def test_each_key_of_two_tables_comes_once() -> None:
    assert list(keys_of({1: "a", 2: "b"}, {2: "c", 3: "d"})) == [1, 2, 3]


def test_nested_tables_and_lists_are_emptied() -> None:
    inner: dict[str, Any] = {"a": [1, {"b": 2}]}
    tree = {"inner": inner, "list": [inner["a"], "text"]}
    let_go(tree)
    assert (tree, inner) == ({}, {})
