import pytest

from loadgen.standin.options import parse_address, parse_partitions


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:6650", ("127.0.0.1", 6650)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:6650", ("::1", 6650)),
    ],
)
def test_an_address_is_host_and_port(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["6650", ":6650", "localhost", "localhost:", "localhost:http", "localhost:65536"])
def test_what_is_no_address_is_named(text):
    with pytest.raises(ValueError, match=r"is not HOST:PORT") as error:
        parse_address(text)
    assert repr(text) in str(error.value)


def test_partitioned_topics_are_known_by_their_full_names():
    assert parse_partitions(["t=3", "persistent://a/b/c=4"]) == {
        "persistent://public/default/t": 3,
        "persistent://a/b/c": 4,
    }


@pytest.mark.parametrize("text", ["t", "t=", "=4", "t=0", "t=-1", "t=many", "t=1001", "x://a/b/c=4"])
def test_what_is_no_partitioned_topic_is_refused(text):
    with pytest.raises(ValueError, match="is not"):
        parse_partitions([text])
