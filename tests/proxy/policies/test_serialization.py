import msgspec
import pytest
from hypothesis import given, settings

from proxy.policies.bodies import BodyError
from proxy.policies.policy_set import decoded, encoded, in_force
from tests.proxy.policies.layered import a_service, changes, files


@settings(max_examples=30, deadline=None)
@given(files(), changes())
def test_any_set_comes_over_as_it_is(file, policies) -> None:
    service = a_service(file, policies)
    held = in_force(service)
    assert decoded(b"".join(encoded(held))) == held
    service.store.close()


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b"no",
        b'{"limits":[{"direction":"up","setting":"proxy","name":"","limit":{},"origin":""}],"attached":[],"groups":[]}',
    ],
)
def test_what_is_no_set_is_an_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decoded(text)


def test_what_is_no_limit_is_an_error() -> None:
    limit = b'{"direction":"publish","setting":"proxy","name":"","limit":{"messages":"x"},"origin":"rest"}'
    with pytest.raises(BodyError, match="publish proxy: messages: 'x'"):
        decoded(b'{"limits":[' + limit + b'],"attached":[],"groups":[]}')
