"""Messages as bytes: decoding restores them, and invalid bytes are refused with their cause."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import fleet_pb2 as wire
from fleet.messages import (
    DEMAND_BYTES,
    FULL_MESSAGE,
    FULL_REPORT,
    GRANT_BYTES,
    HELD_BYTES,
    INTRODUCTION_BYTES,
    MOST,
    MOST_LIMITERS,
    MOST_MESSAGE,
    MOST_NAME,
    MOST_SET_MEMBERS,
    MOST_SETS,
    MOST_VERSION,
    SHARE_BYTES,
    BadMessage,
    Grant,
    Grants,
    Introduction,
    LimitSet,
    MemberReport,
    MemberStatus,
    Quota,
    ShareKey,
    VersionSet,
    WrittenLimits,
)
from fleet.shares import GRAIN, UNBOUNDED, WHOLE

REPORT = MemberReport(
    "f",
    "proxy-1",
    7,
    9,
    3,
    1 << 60,
    seen=4,
    introductions=[Introduction(0, ShareKey.of("publish topic t", "bytes"), Quota(10, 10**9, 5, (20, 10**9, 1)), 1000)],
    ids=[0, 12],
    used=[5000, 1],
    wanted=[UNBOUNDED, 8],
    streams=[3, 1],
    gone=[4],
    version="0.2.0",
)
GRANTS = Grants(
    "f",
    "c",
    1 << 60,
    2,
    [Grant(7, 9, 2, ids=[0, 7, 300], ppm=[5, 500_000, 333_333], held={0: Quota(1, 1, 1)}), Grant(8, 1, void=True)],
    10**18,
    version="0.2.0",
    version_sets=(VersionSet("0.2.0", 2, ("a", "b")), VersionSet("", 1, ("c",))),
    roster=(MemberStatus("a", 7, 10**9, 3, has_twin=True, version="0.2.0"), MemberStatus("c", 8, 0, 0)),
)


def test_decoded_messages_equal_the_encoded_ones() -> None:
    assert MemberReport.decode(REPORT.encode()) == REPORT
    assert Grants.decode(GRANTS.encode()) == GRANTS
    assert Grants.decode(GRANTS.encode(), 8).grants == GRANTS.grants[1:]


LARGEST = Quota(MOST, MOST, MOST, (MOST, MOST, MOST))


def ids(number: int) -> list[int]:
    """`number` ids, as far apart as possible."""
    return list(range(0, MOST_LIMITERS, MOST_LIMITERS // number))[:number]


def test_a_full_message_of_any_content_is_within_its_bound() -> None:
    many = ids(FULL_REPORT // DEMAND_BYTES)
    most, half, streams = [MOST] * len(many), [MOST // 2] * len(many), [0xFFFFFFFF] * len(many)
    demands = MemberReport("f", "", MOST, MOST, MOST, MOST, MOST, ids=many, used=half, wanted=most, streams=streams)
    assert len(demands.encode()) <= 1.1 * FULL_REPORT

    many = ids(FULL_REPORT // (INTRODUCTION_BYTES + 1))
    most, half, streams = [MOST] * len(many), [MOST // 2] * len(many), [0xFFFFFFFF] * len(many)
    named = [Introduction(id_, ShareKey.of("n", "bytes"), LARGEST, WHOLE) for id_ in many]
    introduced = MemberReport(
        "f", "", MOST, MOST, MOST, MOST, MOST, introductions=named, ids=many, used=half, wanted=most, streams=streams
    )
    assert len(introduced.encode()) <= 1.1 * FULL_REPORT

    for shares in (1, 10_000):
        grants = FULL_MESSAGE // (GRANT_BYTES + (SHARE_BYTES + HELD_BYTES) * shares)
        held = dict.fromkeys(ids(shares), LARGEST)
        grant = Grant(MOST, MOST, MOST, ids=ids(shares), ppm=[333_333] * shares, held=held)
        assert len(Grants("f", "c", MOST, 1000, [grant] * grants, MOST).encode()) < MOST_MESSAGE


def test_a_heartbeat_is_small() -> None:
    assert len(MemberReport("fleet", "", (1 << 63) - 1, 100_000, 99_000, 1 << 60, 3000).encode()) <= 48


def test_a_demand_takes_seven_bytes_and_a_share_three() -> None:
    ids, used = range(1000, 101_000, 100), range(500_000, 501_000)
    wanted = [rate + 5010 for rate in used]
    report = MemberReport("f", "", 1, 1, 1, 1, 0, ids=ids, used=used, wanted=wanted, streams=[3] * 1000)
    assert len(report.encode()) < 7100
    grants = Grants("f", "c", 1, 1, [Grant(1, 1, 1, ids=ids, ppm=range(100 * GRAIN, 1100 * GRAIN, GRAIN))])
    assert len(grants.encode()) < 3100


@given(st.lists(st.integers(0, WHOLE), max_size=50))
def test_every_share_arrives_as_it_was_granted(shares) -> None:
    grants = Grants("f", "c", 1, 1, [Grant(1, 1, 1, ids=list(range(len(shares))), ppm=shares)])
    assert Grants.decode(grants.encode()) == grants


@given(st.binary(max_size=300))
def test_noise_is_refused(data) -> None:
    for kind in (MemberReport, Grants):
        with pytest.raises(BadMessage):
            kind.decode(data)


@given(st.sampled_from([REPORT, GRANTS]), st.data())
def test_damaged_messages_raise_only_bad_message(message, data) -> None:
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
        (MemberReport, changed(version=2), "version"),
        (MemberReport, changed(version=0), "version"),
        (MemberReport, changed(fleet="f" * 129), "name"),
        (MemberReport, GRANTS.encode(), "kind"),
        (Grants, REPORT.encode(), "kind"),
        (MemberReport, spoilt(used=[1]), "columns"),
        (MemberReport, spoilt(ids=[1, MOST_LIMITERS]), "value"),
        (MemberReport, spoilt(gone=[MOST_LIMITERS]), "value"),
        (MemberReport, spoilt(member="m" * 257), "name"),
        (MemberReport, spoilt(incarnation=0), "value"),
        (MemberReport, spoilt(epoch=1 << 63), "value"),
        (Grants, Grants("f", "c", 1 << 63, 3).encode(), "value"),
        (MemberReport, spoilt(since=10), "value"),
        (MemberReport, spoilt(introductions=[wire.Introduction(id=1, limiter="x" * 4097, quota=wire.Quota())]), "name"),
        (MemberReport, spoilt(introductions=[wire.Introduction(id=1)]), "name"),
        (
            MemberReport,
            spoilt(introductions=[wire.Introduction(id=1, limiter="x", quota=wire.Quota(tokens=1))]),
            "value",
        ),
        (MemberReport, spoilt(introductions=[wire.Introduction(id=1, limiter="x", ppm=1_000_001)]), "value"),
        (Grants, spoilt(of=GRANTS, shares=[1, 2]), "columns"),
        (Grants, spoilt(of=GRANTS, ids=[1], shares=[1_008_002]), "value"),
        (Grants, spoilt(of=GRANTS, sequence=0), "value"),
    ],
)
def test_an_invalid_message_is_refused_with_its_cause(kind, data, cause) -> None:
    with pytest.raises(BadMessage) as raised:
        kind.decode(data)
    assert raised.value.cause == cause


def test_unknown_fields_are_skipped() -> None:
    later = REPORT.encode() + b"\xfa\x01\x03abc"  # field 31
    assert MemberReport.decode(later) == REPORT


def test_huge_numbers_are_cut() -> None:
    report = MemberReport.decode(spoilt(ids=[1], used=[2**64 - 1], wanted=[2**64 - 1], streams=[2**32 - 1]))
    most = (1 << 62) - 1
    assert (report.ids, report.used, report.wanted, report.streams) == ([1], [most], [most], [1_000_000])
    huge, key = 1 << 70, ShareKey.of("publish topic t", "bytes")
    sent = [Introduction(0, key, Quota(huge, huge, huge, (huge, huge, huge)), 0)]
    read = MemberReport.decode(replace(REPORT, introductions=sent).encode()).introductions
    assert read == [Introduction(0, key, Quota(most, most, most, (most, most, most)), 0)]


def test_grants_name_few_sets_of_limits() -> None:
    sent = LimitSet(WrittenLimits(1 << 63, 7), 9, ("a",) * (MOST_SET_MEMBERS + 1))
    (read, *others) = Grants.decode(Grants("f", "c", 1, 9, limit_sets=(sent,) * (MOST_SETS + 1)).encode()).limit_sets
    assert read == sent._replace(names=("a",) * MOST_SET_MEMBERS)
    assert len(others) == MOST_SETS - 1


def test_grants_name_few_versions_of_bounded_length() -> None:
    sent = VersionSet("9" * (MOST_VERSION + 1), 9, ("a",) * (MOST_SET_MEMBERS + 1))
    grants = Grants("f", "c", 1, 9, version="8" * 99, version_sets=(sent,) * (MOST_SETS + 1))
    read = Grants.decode(grants.encode())
    expected = VersionSet("9" * MOST_VERSION, 9, ("a",) * MOST_SET_MEMBERS)
    assert (read.version, read.version_sets) == ("8" * MOST_VERSION, (expected,) * MOST_SETS)


def test_a_listed_member_has_a_version_of_bounded_length() -> None:
    grants = Grants("f", "c", 1, 9, roster=(MemberStatus("a", 7, 0, 0, version="9" * 99),))
    assert [member.version for member in Grants.decode(grants.encode()).roster] == ["9" * MOST_VERSION]


def test_a_report_has_a_version_of_bounded_length() -> None:
    assert MemberReport.decode(replace(REPORT, version="9" * 99).encode()).version == "9" * MOST_VERSION
    assert MemberReport.decode(replace(REPORT, version="").encode()).version == ""


@given(st.text(max_size=20) | st.builds(" ".join, st.lists(st.sampled_from(["publish", "topic", "", "a b", "t"]))))
def test_the_key_of_a_limiter_has_its_whole_name(limiter: str) -> None:
    key = ShareKey.of(limiter, "bytes")
    assert key.limiter == limiter
    assert key == ShareKey.of(key.limiter, "bytes") == ShareKey(*key)


def test_keys_of_one_direction_and_level_share_their_words() -> None:
    key, other = (ShareKey.of(f"publish topic persistent://t/n/{name}", "messages") for name in "xy")
    assert (key.kind, key.name) == ("publish topic", "persistent://t/n/x")
    assert key.kind is other.kind


def test_too_long_limiter_names_are_cut_and_end_with_a_digest() -> None:
    names = [f"dispatch subscription {'ü' * 2100}@{end}" for end in "ab"]
    names += [f"publish topic {'x' * size}" for size in (4082, 4083)]
    quota = Quota(1, 1, 1)
    own = [Introduction(id_, ShareKey.of(name, "messages"), quota, 0) for id_, name in enumerate(names)]
    read = MemberReport.decode(MemberReport("f", "m", 1, 1, 1, 1, introductions=own).encode()).introductions
    cut = [introduction.key.limiter for introduction in read]
    assert len(set(cut)) == len(names)
    assert all(len(name.encode()) <= MOST_NAME["limiter"] for name in cut)
    assert [name == whole for name, whole in zip(cut, names, strict=True)] == [False, False, True, False]
    assert all(name.split("…")[0] in whole for name, whole in zip(cut, names, strict=True))
