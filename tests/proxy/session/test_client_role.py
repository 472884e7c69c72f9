"""What a client authenticated as."""

import base64
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.block_rules import MOST_ROLE
from proxy.session.handshake import role_of
from tests.proxy.conversation import World
from tests.proxy.wire import connect


def token(claims: Any, signature: str = "c2ln") -> bytes:
    """A JWT; nobody here looks at its signature."""
    body = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return b".".join([b"e30", base64.urlsafe_b64encode(body).rstrip(b"="), signature.encode()])


@pytest.mark.parametrize(
    ("method", "data", "role"),
    [
        ("token", token({"sub": "billing", "exp": 1}), "billing"),
        ("token", token({"sub": "Ünïcode"}), "Ünïcode"),
        ("token", token({"sub": "unsigned"}, signature=""), "unsigned"),
        ("basic", b"alice:secret", "alice"),
        ("basic", b"alice", "alice"),
        ("none", b"alice:secret", ""),
        ("", token({"sub": "billing"}), ""),
        ("tls", b"", ""),
    ],
)
def test_the_role_is_the_tokens_subject_or_the_users_name(method: str, data: bytes, role: str) -> None:
    assert role_of(method, data) == role


@pytest.mark.parametrize(
    "odd",
    [
        *(chr(code) for code in (*range(9, 14), *range(28, 33), 0x1680, 0x2003, 0x2028, 0x2029, 0x3000)),
        "  ",
        "\r\n",
        "=",
    ],
)
@pytest.mark.parametrize("subject", ["billing", "billing1", "billing12"])
def test_what_a_broker_passes_over_in_a_token_hides_no_role(odd: str, subject: str) -> None:
    """jjwt trims each part; a client that put a blank there had no role here, and its own one at the broker."""
    header, payload, signature = token({"sub": subject}).split(b".")
    blank = odd.encode()
    for around in (blank + payload, payload + blank, blank * 2 + payload + blank):
        assert role_of("token", b".".join((header, around, signature))) == subject
    assert role_of("token", b".".join((header + blank, payload, blank + signature))) == subject


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b".", b"..", b"...", b"a.b.c", b"\xff.\xff.\xff", b"e30.!!!.x", b"e30.A.x"),
        *(token({}), token([]), token("x"), token(None), token({"sub": 7}), token({"sub": None})),
        *(token(b'{"sub": "\xff"}'), token(b'{"x":' * 8000), token(b"[" * 8000), token(b'{"sub": "cut')),
        token({"sub": "a" * (MOST_ROLE + 1)}),
        token({"sub": "two\nlines"}),
        token({"sub": "a", "more": "x" * 65536}),
    ],
    ids=map(str, itertools.count()),
)
def test_what_cannot_be_read_is_no_role(data: bytes) -> None:
    assert role_of("token", data) == ""


@given(st.sampled_from(["token", "basic", ""]), st.binary(max_size=200))
def test_no_bytes_break_it_and_no_role_is_long(method: str, data: bytes) -> None:
    assert len(role_of(method, data)) <= MOST_ROLE


def test_a_connection_knows_in_which_role_its_client_came(world: World) -> None:
    client = world.client()
    client >> connect(auth_method_name="token", auth_data=token({"sub": "billing"}))
    world.dialled() << connect(auth_method_name="token", auth_data=token({"sub": "billing"}))
    assert world.sessions[0].connection.client_role == "billing"
