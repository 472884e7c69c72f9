"""Who changes something."""

from proxy.policies.who import Who


def test_two_are_the_same_by_name_and_address() -> None:
    assert Who("ann", "10.0.0.1") == Who("ann", "10.0.0.1") != Who("ann", "10.0.0.2")
