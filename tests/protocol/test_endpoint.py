"""Addresses, from their text and back."""

from dataclasses import replace

import pytest

from protocol.endpoint import LONGEST, Endpoint, EndpointError, EndpointForm, host_in, host_port

LISTEN = EndpointForm(("pulsar",), "127.0.0.1:6650", {"pulsar+ssl": "no TLS yet"}, is_listened_on=True)
BROKER = EndpointForm(("pulsar",), "pulsar://broker:6650", {"pulsar+ssl": "no TLS yet"})
WEB = EndpointForm(("http", "https"), "http://broker:8080", ports={"http": 80, "https": 443})
URL = replace(WEB, is_url=True)


@pytest.mark.parametrize(
    ("form", "text", "endpoint", "written"),
    [
        (BROKER, "host:6650", ("pulsar", "host", 6650), "pulsar://host:6650"),
        (BROKER, "pulsar://host:6650", ("pulsar", "host", 6650), "pulsar://host:6650"),
        (BROKER, "pulsar://host:6650/", ("pulsar", "host", 6650), "pulsar://host:6650"),
        (BROKER, "192.0.2.1:1", ("pulsar", "192.0.2.1", 1), "pulsar://192.0.2.1:1"),
        (BROKER, "[2001:db8::1]:65535", ("pulsar", "2001:db8::1", 65535), "pulsar://[2001:db8::1]:65535"),
        (BROKER, "[fe80::1%eth0]:1", ("pulsar", "fe80::1%eth0", 1), "pulsar://[fe80::1%eth0]:1"),
        (BROKER, "My_Host.example:6650", ("pulsar", "My_Host.example", 6650), "pulsar://My_Host.example:6650"),
        (BROKER, "*.example:6650", ("pulsar", "*.example", 6650), "pulsar://*.example:6650"),
        (LISTEN, "0.0.0.0:0", ("pulsar", "0.0.0.0", 0), "pulsar://0.0.0.0:0"),
        (WEB, "broker:8080", ("http", "broker", 8080), "http://broker:8080"),
        (WEB, "http://broker", ("http", "broker", 80), "http://broker:80"),
        (WEB, "https://[::1]/", ("https", "::1", 443), "https://[::1]:443"),
    ],
)
def test_an_address_is_taken_apart_and_written_again(form, text, endpoint, written):
    parsed = form.parse(text)
    assert parsed == endpoint
    assert str(parsed) == written
    assert parsed.address == written.partition("://")[2]
    assert form.parse(str(parsed)) == form.parse(parsed.address if endpoint[0] == form.schemes[0] else text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", "host:", ":6650", "host:port", "host:65536", "host:-1", "host:²", "host:6650/path", "::1:6650"),
        *("ho st:6650", "user@host:6650", "[::1:6650", "pulsar://", "pulsar://host"),
        *("10.0.0.1\0.example:6650", "[fe80::1%\0]:6650", "x" * LONGEST + ":6650"),
    ],
)
def test_a_malformed_address_is_refused_with_text_and_remedy(text):
    with pytest.raises(EndpointError, match=r"is not host:port; write it as pulsar://broker:6650") as refused:
        BROKER.parse(text)
    assert str(refused.value).startswith(repr(text[:LONGEST]))
    assert len(str(refused.value)) < LONGEST + 100


@pytest.mark.parametrize(
    ("form", "text", "why"),
    [
        (BROKER, "pulsar+ssl://b:6651", "'pulsar+ssl://b:6651': no TLS yet"),
        (LISTEN, "pulsar+ssl://0.0.0.0:6651", "'pulsar+ssl://0.0.0.0:6651': no TLS yet"),
        (BROKER, "http://b:1", "'http://b:1': http:// is not taken here; write it as pulsar://broker:6650"),
        (WEB, "pulsar://b:1", "'pulsar://b:1': pulsar:// is not taken here; write it as http://broker:8080"),
        (BROKER, "PULSAR://b:1", "'PULSAR://b:1': PULSAR:// is not taken here; write it as pulsar://broker:6650"),
        (BROKER, "a://b://c:1", "'a://b://c:1': a:// is not taken here; write it as pulsar://broker:6650"),
        (BROKER, "pulsar://a:1,b:2", "'pulsar://a:1,b:2': names several hosts; write one, as pulsar://broker:6650: "),
        (BROKER, "a,b:2", "'a,b:2': names several hosts; write one, as pulsar://broker:6650: "),
        (URL, "broker:8080", "'broker:8080': has no scheme; write it as http://broker:8080"),
        (URL, "http://broker?x", "'http://broker?x': is not host:port; write it as http://broker:8080"),
        (URL, "http://broker#x", "'http://broker#x': is not host:port; write it as http://broker:8080"),
        (URL, "http://broker/admin", "'http://broker/admin': is not host:port; write it as http://broker:8080"),
        (BROKER, "b:0", "'b:0': has port 0, at which nothing listens; write the listener's port"),
    ],
)
def test_an_address_of_another_use_is_refused_with_the_remedy(form, text, why):
    with pytest.raises(EndpointError) as refused:
        form.parse(text)
    assert str(refused.value).startswith(why)
    assert str(refused.value).endswith(refused.value.problem)


@pytest.mark.parametrize(
    ("url", "endpoint", "path"),
    [
        ("http://b:8080", ("http", "b", 8080), ""),
        ("http://b:8080/", ("http", "b", 8080), "/"),
        ("https://[::1]/admin/v2/clusters?a=//b", ("https", "::1", 443), "/admin/v2/clusters?a=//b"),
    ],
)
def test_a_url_is_split_into_endpoint_and_path(url, endpoint, path):
    assert WEB.split(url) == (Endpoint(*endpoint), path)


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "broker"])
def test_host_in_returns_the_host_that_host_port_was_given(host):
    assert host_in(host_port(host, 6650)) == host


def test_an_endpoint_cannot_be_changed():
    with pytest.raises(AttributeError):
        Endpoint("pulsar", "a", 1).host = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("broker", "broker"),
        ("broker.", "broker"),
        ("Broker.Example.", "broker.example"),
        ("br\u00f6ker.example", "xn--brker-kua.example"),
        ("[2001:DB8:0:0::1]", "2001:db8::1"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        ("192.0.2.1", "192.0.2.1"),
        ("*.Example", "*.example"),
        ("\u00fc" * 64, "\u00fc" * 64),
    ],
)
def test_a_host_has_one_name_however_it_is_written(host, name):
    endpoint = BROKER.parse(f"{host}:6650")
    assert endpoint.name == name
    assert endpoint.host == host.strip("[]"), "a resolver gets the host as it was written"
