"""Who changes something."""

from proxy.policies.keys import Principal


def test_two_are_the_same_by_name_and_address() -> None:
    assert Principal("ann", "10.0.0.1") == Principal("ann", "10.0.0.1") != Principal("ann", "10.0.0.2")
