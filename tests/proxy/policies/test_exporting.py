import yaml

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Limit, rate
from proxy.policies.policy_set import PolicySet, as_yaml


def test_each_value_has_its_origin_behind_it() -> None:
    policies = PolicySet({("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop"): Value(Limit(rate(5)), "global")})
    text = b"".join(as_yaml(policies)).decode()
    assert '    "acme/shop":\n      publish:\n        messages: 5  # global\n' in text


def test_without_any_limit_it_says_so() -> None:
    assert yaml.safe_load(b"".join(as_yaml(PolicySet()))) == {"limits": {}}
