"""Whatever stands where a file should be, nobody waits for it, and no more than the bound is read."""

import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.auth import read_tokens
from proxy.admin.forwarding.broker import broker_token
from proxy.cli.admin_link import AdminLink
from proxy.cli.options import AdminLinkError, AdminOptions
from proxy.config.model import ConfigError, load_config
from proxy.files import MOST_CONFIG, MOST_PEM, open_regular, read_file, reopenable, replacing
from proxy.importing.broker_conf import from_file
from proxy.importing.result import ImportFailed
from proxy.observe.log_lines import AddressKeyError, read_key
from proxy.policies.store import Store, StoreError
from proxy.tls.certificates import forward_tls
from tests.proxy.odd_files import ODD, bound_socket, fifo, folder


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_regular_file_of_a_bounded_size_is_told_at_once(tmp_path: Path, kind: str) -> None:
    make, reason = ODD[kind]
    path = make(tmp_path / "file")
    with pytest.raises(OSError) as refused:
        read_file(path, MOST_CONFIG)
    assert reason in str(refused.value.strerror)
    with pytest.raises(OSError, match=reason), reopenable(path):
        pytest.fail("it was opened")


def test_no_descriptor_is_left_of_what_is_refused(tmp_path: Path) -> None:
    paths = [make(folder(tmp_path / str(number)) / "file") for number, (make, _) in enumerate(ODD.values())]
    before = len(list(Path("/dev/fd").iterdir()))
    for path in paths:
        with pytest.raises(OSError, match=str(path)):
            read_file(path, MOST_CONFIG)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_file_of_exactly_the_bound_is_read_whole(tmp_path: Path) -> None:
    file, content = tmp_path / "file", os.urandom(3 * 1024**2 + 1)
    file.write_bytes(content)
    assert read_file(file, len(content)) == content
    with pytest.raises(OSError, match=f"it has more than {len(content) - 1} bytes"):
        read_file(file, len(content) - 1)


def contents(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()}


def test_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    with suppress(KeyError), replacing(file, 0o600) as new:
        new.write(b"half")
        raise KeyError
    assert contents(tmp_path) == {"file": b"old"}
    with replacing(file, 0o600) as new:
        new.write(b"new")
        new.flush()
        assert contents(tmp_path) == {"file": b"old", ".file.new": b"new"}
    assert contents(tmp_path) == {"file": b"new"}
    assert file.stat().st_mode & 0o777 == 0o600


def test_replacing_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"other")
    for link in ("file", ".file.new"):
        (tmp_path / link).symlink_to("other")
    with replacing(tmp_path / "file", 0o600) as new:
        new.write(b"new")
    assert not (tmp_path / "file").is_symlink()
    assert contents(tmp_path) == {"file": b"new", "other": b"other"}


def test_new_file_replaces_none_made_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with pytest.raises(FileExistsError), replacing(file, 0o600, is_new=True):
        file.write_bytes(b"other")
    assert contents(tmp_path) == {"file": b"other"}


def test_a_file_that_does_not_tell_its_size_has_its_bound_all_the_same() -> None:
    """Those of /proc are regular, and have no size."""
    path = Path("/proc/self/status")
    if not path.exists():
        pytest.skip("no /proc here")
    assert read_file(path, MOST_PEM).startswith(b"Name:")
    with pytest.raises(OSError, match="it has more than 4 bytes"):
        read_file(path, 4)


def test_a_link_is_followed_unless_that_is_forbidden(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert read_file(link, 1) == b"x"
    with pytest.raises(OSError, match="it is a link; only regular files are read"):
        open_regular(link, os.O_RDONLY | os.O_NOFOLLOW)


def _config(path: Path) -> None:
    load_config(path, {})


def _options(option: str, path: Path) -> AdminOptions:
    given: dict[str, Any] = {option: path}
    return AdminOptions("https://127.0.0.1:1", **given)


def _admin_link(option: str) -> Callable[[Path], object]:
    return lambda path: AdminLink(_options(option, path), 1.0)


READERS: dict[str, Callable[[Path], object]] = {
    "configuration": _config,
    "tokens": read_tokens,
    "broker's token": broker_token,
    "broker.conf": from_file,
    "key of addresses": read_key,
    "authority of brokers": forward_tls,
    "--ca": _admin_link("ca"),
    "--cert": _admin_link("cert"),
    "--token-file": _admin_link("token_file"),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_tells_the_file_and_what_it_is(tmp_path: Path, reader: str, kind: str) -> None:
    make, reason = ODD[kind]
    if (reader, kind) == ("configuration", "a folder"):
        reason = "it is a directory that has no file NAME.yaml"
    path = make(tmp_path / "file")
    with pytest.raises((ConfigError, AddressKeyError, ImportFailed, AdminLinkError)) as refused:
        READERS[reader](path)
    (problem,) = getattr(refused.value, "problems", [str(refused.value)])
    assert str(path) in problem
    assert reason in problem


@pytest.mark.parametrize("beside", ["", ".lock", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["a FIFO", "a link to one", "a socket", "a folder"])
def test_a_store_is_a_regular_file_and_all_beside_it(tmp_path: Path, kind: str, beside: str) -> None:
    make, reason = ODD[kind]
    odd = make(tmp_path / f"store{beside}")
    with pytest.raises(StoreError, match=r"policies\.store: ") as refused:
        Store(tmp_path / "store")
    assert reason in str(refused.value)
    assert not beside or str(odd) in str(refused.value)


@pytest.mark.parametrize("make", [fifo, folder, bound_socket])
def test_nothing_is_written_into_what_is_no_file(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def test_a_library_opens_the_very_file_that_was_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"looked at")
    with reopenable(file) as name:
        file.unlink()
        fifo(file)
        assert Path(name).read_bytes() == b"looked at"
        with pytest.raises(ssl.SSLError):  # it reads to the end of what holds no certificate
            ssl.create_default_context(cafile=name)
