import re
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from proxy.config import values
from proxy.config.values import (
    BrokerAddress,
    Count,
    HostName,
    ListenAddresses,
    NamespaceName,
    NetworkName,
    ProxyId,
    Size,
    TenantName,
    WholeTopic,
    read_count_rate,
    read_rate,
    read_size,
    read_span,
)


def test_a_rate_of_messages_has_no_unit_of_bytes():
    assert read_count_rate("30/min") == (30, 60_000_000_000)
    with pytest.raises(ValueError, match="of what is counted"):
        read_count_rate("10KB")


def test_no_rate_is_larger_than_what_pulsar_can_say():
    assert read_rate(2**63 - 1)[0] == 2**63 - 1
    with pytest.raises(ValueError, match="at most"):
        read_rate(2**63)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("5/30s", (5, 30_000_000_000)),
        ("5/ 30 s", (5, 30_000_000_000)),
        ("1/500ms", (1, 500_000_000)),
        ("7/1.5h", (7, 5_400_000_000_000)),
        ("500/s", (500, 1_000_000_000)),
    ],
)
def test_a_period_may_be_any_span(written: str, read: tuple[int, int]) -> None:
    assert read_rate(written) == read


def test_no_period_is_longer_than_what_pulsar_can_say() -> None:
    assert read_rate("5/2147483647s")[1] == (2**31 - 1) * 10**9
    with pytest.raises(ValueError, match="a period is at most 2147483647s"):
        read_rate("5/999999999999999999999999999999d")


@pytest.mark.parametrize("written", ["5/", "5/0s", "5/30", "5/30x", "5/-1s", "5/s/s", "5/30S"])
def test_what_is_no_span_is_told_with_an_example(written: str) -> None:
    with pytest.raises(ValueError, match="5/30s"):
        read_rate(written)


@pytest.mark.parametrize("read", [read_size, read_span, read_rate, read_count_rate])
@pytest.mark.parametrize(
    "written",
    ["5" + " " * 60_000 + "!", " " * 60_000 + "5", "5" + " " * 60_000, "0" * 60_000 + "5", "5/1." + "0" * 100 + "s"],
)
def test_no_pattern_goes_over_what_is_longer_than_any_number(
    read: Callable[[str], object], written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pattern in ("_NUMBER_AND_WORD", "_PERIOD"):
        monkeypatch.setattr(values, pattern, None)
    with pytest.raises(ValueError, match="at most 80 belong here; write ") as refused:
        read(written)
    assert len(str(refused.value)) < 200
    assert written[:40] in str(refused.value)


def test_as_long_as_a_number_may_be_it_is_read() -> None:
    assert read_size("5 MB".center(80)) == 5_000_000
    assert read_span("5 min".rjust(80)) == 300
    assert read_rate(" 5 MB / 30 s ") == (5_000_000, 30 * 10**9)
    assert read_count_rate("5 /min".ljust(80)) == (5, 60 * 10**9)


@pytest.mark.parametrize("written", ["5  MB", "5 MB!", "5\tMB", "5 M B", "", " "])
def test_at_most_one_blank_stands_before_a_unit(written: str) -> None:
    with pytest.raises(ValueError, match="write bytes as"):
        read_size(written)


@pytest.mark.parametrize(
    ("read", "written"),
    [
        (read_count_rate, "\u0661\u0662"),
        (read_count_rate, "\u0661\u0662/s"),
        (read_count_rate, "5/\u0663s"),
        (read_count_rate, "5²"),
        (read_rate, "\u0661KB/s"),
        (read_size, "\u0661\u0662"),
        (read_span, "\u0661s"),
    ],
)
def test_digits_are_those_of_ascii(read: Callable[[str], object], written: str) -> None:
    with pytest.raises(ValueError, match=r"^write (a rate|bytes|a duration)"):
        read(written)


def test_a_count_with_blanks_around_it_is_no_longer_than_any_number() -> None:
    count = TypeAdapter[int](Count)
    assert count.validate_python("5".rjust(80)) == 5
    with pytest.raises(ValueError, match="at most 80"):
        count.validate_python("5".rjust(81))


@pytest.mark.parametrize("kind", [BrokerAddress, ListenAddresses, HostName, NetworkName])
def test_no_address_is_longer_than_a_name_in_the_dns_with_its_port(kind: Any) -> None:
    with pytest.raises(ValueError, match="at most 300"):
        TypeAdapter[str](kind).validate_python("1" * 301)


_LONGEST, _TOO_LONG = "x" * 1024, "x" * 1025


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TenantName, _LONGEST),
        (NamespaceName, f"{_LONGEST}/{_LONGEST}"),
        (WholeTopic, f"non-persistent://{_LONGEST}/{_LONGEST}/{_LONGEST}"),
    ],
)
def test_names_are_as_long_as_pulsar_s_paths_take_them(kind: Any, name: str) -> None:
    read = TypeAdapter[str](kind).validate_python
    assert read(name) == name
    for wrong in {name.replace(_LONGEST, _TOO_LONG), name.replace(_LONGEST, _TOO_LONG, 1), name + "x"}:
        with pytest.raises(ValueError, match="at most"):
            read(wrong)


def test_files_of_a_proxy_that_may_have_its_id_are_seen_by_who_reads_the_log() -> None:
    adapter = TypeAdapter[str](ProxyId)
    for legal in ("a", "9", "-a", "proxy-1.east_2", "a" * 100):
        assert adapter.validate_python(legal) == legal
    for passed_over in ("_a", ".a", "._", "a/b", "a:b", "a\n", "é", "", "a" * 101):
        with pytest.raises(ValueError, match="no dot or underscore first"):
            adapter.validate_python(passed_over)


@pytest.mark.parametrize(
    ("written", "forms"),
    [
        ("10Mb/s", "10MB/s or 10MiB/s"),
        ("10mb/s", "10MB/s or 10MiB/s"),
        ("10m/s", "10MB/s or 10MiB/s"),
        ("10M", "10MB or 10MiB"),
        ("1.5 Mbit/min", "1.5MB/min or 1.5MiB/min"),
        ("64kb", "64KB or 64KiB"),
        ("64kib/30s", "64KB/30s or 64KiB/30s"),
        ("1Gbps", "1GB or 1GiB"),
    ],
)
def test_units_that_may_be_bits_are_refused(written: str, forms: str) -> None:
    with pytest.raises(ValueError, match=f"is no unit of bytes, and a small b may be bits: write {forms}$"):
        read_rate(written)


@pytest.mark.parametrize("written", ["64b", "10TB", "10 miles"])
def test_a_size_of_another_unit_gets_examples(written: str) -> None:
    with pytest.raises(ValueError, match="write bytes as 4096, 64KB, 10MB, 1GiB"):
        read_size(written)


@pytest.mark.parametrize("unit", ["", "B", "kB", "KB", "MB", "GB", "KiB", "MiB", "GiB"])
def test_each_unit_of_bytes_fits_the_schema(unit: str) -> None:
    (_, texts) = TypeAdapter(Size).json_schema()["anyOf"]
    assert read_size(f"3{unit}") >= 3
    assert re.search(texts["pattern"], f"3{unit}")
    assert not re.search(texts["pattern"], "3Mb")
