import pytest
from pydantic import BaseModel

from proxy.config.limits import Limits, RateLimit
from proxy.config.model import Config, Publish
from proxy.config.reference import default_of, example_of, name_example, type_of
from proxy.config.sections import AccessLogSettings, AdminAccess, AdminTls


@pytest.mark.parametrize(
    ("model", "key", "kind", "default"),
    [
        (Config, "listen", "HOST:PORT, or a list", "127.0.0.1:6650"),
        (Config, "metrics", "HOST:PORT", None),
        (Config, "linger", "duration, above 0", "10s"),
        (Config, "max_connections", "integer, above 0", "10000"),
        (Config, "allowed_broker_networks", "list: network", None),
        (AccessLogSettings, "dir", "path", None),
        (AccessLogSettings, "interval", "duration, from 0.1, up to 60", "1s"),
        (AccessLogSettings, "queue", "size in bytes, above 0", "32MiB"),
        (Publish, "mode", "hold or pause", "hold"),
        (AdminAccess, "max_body", "size in bytes, above 0, up to 16777216", "64KiB"),
        (AdminAccess, "rate", "rate", "200/s"),
        (AdminTls, "key", "path", None),
        (RateLimit, "bytes", "rate of bytes", None),
    ],
)
def test_a_key_is_told_as_it_is_written(model: type[BaseModel], key: str, kind: str, default: str | None) -> None:
    field = model.model_fields[key]
    assert (type_of(field), default_of(field)) == (kind, default)


def test_an_example_is_of_its_key_s_type() -> None:
    assert example_of("allowed_brokers", Config.model_fields["allowed_brokers"]) == ["broker-1:6650"]
    assert example_of("burst_messages", RateLimit.model_fields["burst_messages"]) == 1000
    assert name_example(Limits.model_fields["namespaces"].annotation) == "acme/shop"
