"""The files of the admin address's TLS, and the names of callers."""

from typing import Any

import pytest

from proxy.admin.auth import common_name
from proxy.config.sections import AdminTls
from proxy.tls.certificates import admin_tls
from tests.proxy.certificates import Authority


def subject(*parts: tuple[str, str]) -> dict[str, Any]:
    return {"subject": tuple((part,) for part in parts)}


def test_good_files_make_a_context_that_asks_for_certificates_only_with_a_client_ca(authority: Authority) -> None:
    plain = admin_tls(AdminTls.model_validate(authority.server())).context
    mutual = admin_tls(AdminTls.model_validate({**authority.server(), "client_ca": authority.certificate})).context
    assert (plain.verify_mode.name, mutual.verify_mode.name) == ("CERT_NONE", "CERT_OPTIONAL")
    assert plain.minimum_version.name == "TLSv1_2"


def test_a_caller_is_named_by_the_common_name_of_the_subject() -> None:
    assert common_name(subject(("countryName", "DE"), ("commonName", "alice"))) == "alice"


@pytest.mark.parametrize(
    "certificate",
    [
        {},
        subject(("organizationName", "alice")),
        subject(("commonName", "alice"), ("commonName", "root")),
        subject(("commonName", "")),
        subject(("commonName", "a\nb")),
        subject(("commonName", "x" * 101)),
    ],
)
def test_a_certificate_with_no_one_name_that_can_be_shown_names_nobody(certificate: dict[str, Any]) -> None:
    assert common_name(certificate) is None
