import pytest

from proxy.observe.log_lines import AddressKeyError, as_they_are, hashed, read_key


def test_under_one_key_an_address_has_one_hash_and_no_other_has_it():
    shown = hashed(b"k" * 16)
    addresses = [f"192.0.2.{number}" for number in range(256)]
    assert [hashed(b"k" * 16)(address) for address in addresses] == [shown(address) for address in addresses]
    assert len({shown(address) for address in addresses}) == 256
    assert len(shown(addresses[0])) == len("k1234:0123456789abcdef")


def test_hashes_of_two_keys_tell_which_is_whose():
    digest, other = hashed(b"k" * 16)("192.0.2.1"), hashed(b"l" * 16)("192.0.2.1")
    assert digest.partition(":")[0] != other.partition(":")[0]
    assert digest.partition(":")[2] != other.partition(":")[2]


def test_without_a_key_an_address_is_as_it_is():
    assert as_they_are("192.0.2.1") == "192.0.2.1"


def test_a_key_is_what_is_in_the_file_without_the_newline(tmp_path):
    (tmp_path / "key").write_bytes(b" 0123456789abcdef\n")
    assert read_key(tmp_path / "key") == b"0123456789abcdef"


def test_a_key_that_is_not_there_or_too_short_is_refused(tmp_path):
    (tmp_path / "key").write_bytes(b"0123456789abcde\n")
    with pytest.raises(AddressKeyError, match="key: holds 15 bytes; a key has at least 16"):
        read_key(tmp_path / "key")
    with pytest.raises(AddressKeyError, match="none: cannot be read: No such file"):
        read_key(tmp_path / "none")
