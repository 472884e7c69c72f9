"""Endpoints from their text."""

from protocol.endpoint import BROKERS, EndpointForm

broker_at = BROKERS.parse
web_at = EndpointForm(("http",), "127.0.0.1:8080", is_listened_on=True).parse
