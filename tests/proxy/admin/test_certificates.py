"""The files of the admin address's TLS, and the names of callers."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.admin.auth import common_name, tls_context
from proxy.config.model import ConfigError
from proxy.config.sections import AdminTls
from tests.proxy.certificates import Authority
from tests.proxy.odd_files import ODD


def problems(**files: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        tls_context(AdminTls.model_validate(files))
    return refused.value.problems


def subject(*parts: tuple[str, str]) -> dict[str, Any]:
    return {"subject": tuple((part,) for part in parts)}


def test_good_files_make_a_context_that_asks_for_certificates_only_with_a_client_ca(authority: Authority) -> None:
    plain = tls_context(AdminTls.model_validate(authority.server()))
    mutual = tls_context(AdminTls.model_validate({**authority.server(), "client_ca": authority.certificate}))
    assert (plain.verify_mode.name, mutual.verify_mode.name) == ("CERT_NONE", "CERT_OPTIONAL")
    assert plain.minimum_version.name == "TLSv1_2"


def test_every_file_that_cannot_be_read_is_told_with_its_key(tmp_path: Path) -> None:
    files = {key: tmp_path / key for key in ("certificate", "key", "client_ca")}
    assert problems(**files) == [
        f"admin_access.tls.{key}: {path}: cannot be read: No such file or directory" for key, path in files.items()
    ]


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("key", ["certificate", "key", "client_ca"])
def test_what_is_no_regular_file_is_told_and_not_waited_for(
    authority: Authority, tmp_path: Path, kind: str, key: str
) -> None:
    make, said = ODD[kind]
    path = make(tmp_path / "file")
    (problem,) = problems(**{**authority.server(), key: path})
    assert problem.startswith(f"admin_access.tls.{key}: {path}: cannot be read: ")
    assert said in problem


def test_a_key_of_another_certificate_is_told(authority: Authority) -> None:
    _, key = authority.sign("somebody")
    (problem,) = problems(**{**authority.server(), "key": key})
    assert problem.startswith("admin_access.tls.certificate: ")
    assert f"and key {key} are not a PEM certificate and its private key" in problem
    assert problem.endswith("(key values mismatch)")


def test_a_key_with_a_password_is_told_and_nobody_is_asked_for_it(authority: Authority, tmp_path: Path) -> None:
    files, locked = authority.server(), tmp_path / "locked.key"
    command = ["openssl", "ec", "-in", files["key"], "-aes256", "-passout", "pass:abcd", "-out", str(locked)]
    subprocess.run(command, check=True, capture_output=True)
    (problem,) = problems(**{**files, "key": locked})
    assert f"key {locked} are not a PEM certificate and its private key without a password" in problem


def test_what_is_no_certificate_is_told(authority: Authority, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing\n")
    (own,) = problems(**{**authority.server(), "certificate": nothing})
    (theirs,) = problems(**{**authority.server(), "client_ca": nothing})
    assert own.startswith(f"admin_access.tls.certificate: {nothing} and key ")
    assert theirs.startswith(f"admin_access.tls.client_ca: {nothing}: is not a PEM certificate")


def test_a_key_that_others_can_read_gets_a_warning(authority: Authority, tmp_path: Path) -> None:
    files = authority.server()
    key = tmp_path / "open.key"
    key.write_bytes(Path(files["key"]).read_bytes())
    key.chmod(0o644)
    with capture_logs() as logs:
        tls_context(AdminTls.model_validate({**files, "key": key}))
    assert [(line["key"], line["file"]) for line in logs] == [("admin_access.tls.key", str(key))]


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
