"""Messages as bytes: what is said arrives, and what is no message is refused by its cause."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import fleet_pb2 as wire
from fleet.messages import (
    MOST_LIMITERS,
    MOST_MESSAGE,
    BadMessage,
    Grant,
    Grants,
    Introduction,
    MemberReport,
    Quota,
    ShareKey,
    ToldDemand,
)
from fleet.shares import UNBOUNDED

REPORT = MemberReport(
    "f",
    "proxy-1",
    7,
    9,
    3,
    1 << 60,
    seen=4,
    introductions=[Introduction(0, ShareKey("publish topic t", "bytes"), Quota(10, 10**9, 5, (20, 10**9, 1)), 1000)],
    told=[ToldDemand(0, 5000, UNBOUNDED, 3), ToldDemand(12, 1, 0, 1)],
    gone=[4],
)
GRANTS = Grants(
    "f", "c", 1 << 60, 2, [Grant(7, 9, 2, shares=[(0, 5)], held={0: Quota(1, 1, 1)}), Grant(8, 1, void=True)]
)


def test_what_is_said_arrives() -> None:
    assert MemberReport.decode(REPORT.encode()) == REPORT
    assert Grants.decode(GRANTS.encode()) == GRANTS


def test_a_heartbeat_is_small() -> None:
    assert len(MemberReport("fleet", "", (1 << 63) - 1, 100_000, 99_000, 1 << 60, 3000).encode()) <= 48


def test_an_entry_of_a_column_takes_ten_bytes() -> None:
    told = [ToldDemand(1000 + index, 50_000 + index, 60_000, 3) for index in range(1000)]
    assert len(MemberReport("f", "", 1, 1, 1, 1, told=told).encode()) < 10_000


@given(st.binary(max_size=300))
def test_noise_is_refused(data) -> None:
    for kind in (MemberReport, Grants):
        with pytest.raises(BadMessage):
            kind.decode(data)


@given(st.sampled_from([REPORT, GRANTS]), st.data())
def test_damaged_messages_raise_nothing_else(message, data) -> None:
    whole = bytearray(message.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    for kind in (MemberReport, Grants):
        try:
            kind.decode(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
        except BadMessage as bad:
            assert bad.cause in {"malformed", "version", "kind", "columns", "name", "value"}  # noqa: PT017


def spoilt(of=REPORT, **fields: object) -> bytes:
    message = wire.Message.FromString(of.encode())
    target = message.report if of is REPORT else message.grants.grants[0]
    for name, value in fields.items():
        field = getattr(target, name)
        if hasattr(field, "extend"):
            del field[:]
            field.extend(value)
        else:
            setattr(target, name, value)
    return message.SerializeToString()


def changed(**fields: object) -> bytes:
    message = wire.Message.FromString(REPORT.encode())
    for name, value in fields.items():
        setattr(message, name, value)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("kind", "data", "cause"),
    [
        (MemberReport, bytes(MOST_MESSAGE + 1), "oversized"),
        (MemberReport, REPORT.encode()[:-1], "malformed"),
        (MemberReport, changed(major=2), "version"),
        (MemberReport, changed(major=0), "version"),
        (MemberReport, changed(fleet="f" * 129), "name"),
        (MemberReport, GRANTS.encode(), "kind"),
        (Grants, REPORT.encode(), "kind"),
        (MemberReport, spoilt(used=[1]), "columns"),
        (MemberReport, spoilt(ids=[1, MOST_LIMITERS]), "value"),
        (MemberReport, spoilt(gone=[MOST_LIMITERS]), "value"),
        (MemberReport, spoilt(member="m" * 257), "name"),
        (MemberReport, spoilt(incarnation=0), "value"),
        (MemberReport, spoilt(since=10), "value"),
        (MemberReport, spoilt(introductions=[wire.Introduction(id=1, limiter="x" * 4097, quota=wire.Quota())]), "name"),
        (MemberReport, spoilt(introductions=[wire.Introduction(id=1)]), "name"),
        (
            MemberReport,
            spoilt(introductions=[wire.Introduction(id=1, limiter="x", quota=wire.Quota(tokens=1))]),
            "value",
        ),
        (MemberReport, spoilt(introductions=[wire.Introduction(id=1, limiter="x", ppm=1_000_001)]), "value"),
        (Grants, spoilt(of=GRANTS, ppm=[1, 2]), "columns"),
        (Grants, spoilt(of=GRANTS, ppm=[1_000_001]), "value"),
        (Grants, spoilt(of=GRANTS, sequence=0), "value"),
    ],
)
def test_each_is_refused_by_its_cause(kind, data, cause) -> None:
    with pytest.raises(BadMessage) as raised:
        kind.decode(data)
    assert raised.value.cause == cause


def test_a_later_minor_version_is_understood_as_far_as_it_is_known() -> None:
    later = changed(minor=9) + b"\xfa\x01\x03abc"  # and a field 31 that nobody here knows
    assert MemberReport.decode(later) == REPORT


def test_huge_numbers_are_cut() -> None:
    report = MemberReport.decode(spoilt(ids=[1], used=[2**64 - 1], wanted=[2**64 - 1], streams=[2**32 - 1]))
    assert report.told == [ToldDemand(1, (1 << 62) - 1, (1 << 62) - 1, 1_000_000)]
