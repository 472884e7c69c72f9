"""The files that verify clients: forms, changes, and what is wrong with them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from proxy.config.model import Config, ConfigError, load_config
from proxy.config.sections import Authentication
from proxy.identity.authenticator import MOST_KEYS_AT_ONCE, MOST_PROVED, ClientAuthenticator
from proxy.identity.evidence import Credentials, Identity, NotProved
from proxy.session.engine import verifier_of
from tests.proxy.identity.keys import NOW, OTHER_SECRET, RSA, SECRET, public, signed, token_files
from tests.proxy.identity.test_passwords import HASHES, Pending
from tests.proxy.rereading import read_again


def authenticator(section: dict[str, Any], **more: Any) -> ClientAuthenticator:
    return ClientAuthenticator(Authentication.model_validate(section), lambda: NOW, **more)


def problems(section: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        authenticator(section)
    return refused.value.problems


@pytest.mark.parametrize("form", ["{path}", "file://{path}", "file:{path}", "data:;base64,{base64}"])
def test_a_key_is_named_as_pulsar_names_it(tmp_path: Path, form: str) -> None:
    section = token_files(tmp_path)
    path = section["token"]["secret_key"]
    source = form.format(path=path, base64=base64.b64encode(SECRET).decode())
    verifier = authenticator({**section, "token": {"secret_key": source}})
    assert verifier.by_token(signed({"sub": "billing"})) == Identity("billing", "token")


def test_a_token_may_fit_any_of_several_keys(tmp_path: Path) -> None:
    section = token_files(tmp_path)
    (tmp_path / "public.pem").write_bytes(public(RSA))
    section["token"]["public_key"] = str(tmp_path / "public.pem")
    verifier = authenticator(section)
    for token in (signed({"sub": "billing"}), signed({"sub": "billing"}, RSA, "RS256")):
        assert verifier.by_token(token) == Identity("billing", "token")
    assert isinstance(verifier.by_token(signed({"sub": "billing"}, OTHER_SECRET)), NotProved)


def test_clocks_may_differ_as_configured(tmp_path: Path) -> None:
    section = token_files(tmp_path)
    expired = signed({"sub": "billing", "exp": NOW - 1})
    assert isinstance(authenticator(section).by_token(expired), NotProved)
    section["token"]["allowed_clock_skew"] = "2s"
    assert authenticator(section).by_token(expired) == Identity("billing", "token", NOW + 1)


def test_what_sluice_shows_brokers_is_its_token_else_its_certificate(tmp_path: Path) -> None:
    section = token_files(tmp_path)
    assert authenticator(section).own == Credentials("token", signed({"sub": "sluice"}))
    del section["broker"]
    assert authenticator(section).own == Credentials("", b"")
    assert authenticator(section, shows_certificate=True).own == Credentials("tls", b"")


def test_a_broken_file_changes_nothing_and_says_why(tmp_path: Path) -> None:
    section = token_files(tmp_path)
    verifier = authenticator(section)
    (tmp_path / "secret.key").write_bytes(b"short")
    (tmp_path / "sluice.token").unlink()
    with pytest.raises(ConfigError) as refused:
        read_again(verifier)
    assert [problem.partition(": ")[0] for problem in refused.value.problems] == [
        "authentication.token.secret_key",
        "authentication.broker.token_file",
    ]
    assert verifier.by_token(signed({"sub": "billing"})) == Identity("billing", "token")
    assert verifier.own == Credentials("token", signed({"sub": "sluice"}))


def test_changed_files_forget_the_tokens_proved_before(tmp_path: Path) -> None:
    verifier = authenticator(token_files(tmp_path))
    token = signed({"sub": "billing"})
    assert verifier.by_token(token) == Identity("billing", "token")
    token_files(tmp_path, OTHER_SECRET)
    take = read_again(verifier)
    assert verifier.by_token(token) == Identity("billing", "token")
    take()
    assert isinstance(verifier.by_token(token), NotProved)


def test_a_token_that_was_verified_is_remembered_until_it_expires(tmp_path: Path) -> None:
    verifier = authenticator(token_files(tmp_path))
    now = [NOW]
    verifier.now = lambda: now[0]
    token = signed({"sub": "billing", "exp": NOW + 5})
    assert verifier.by_token(token) is verifier.by_token(token)
    now[0] += 5
    refusal = verifier.by_token(token)
    assert isinstance(refusal, NotProved)
    assert "expired" in refusal.reason


def test_of_verified_tokens_so_many_are_remembered(tmp_path: Path) -> None:
    verifier = authenticator(token_files(tmp_path))
    for number in range(MOST_PROVED):
        verifier._proved[b"%d" % number] = Identity("r", "token")
    verifier.by_token(signed({"sub": "billing"}))
    assert len(verifier._proved) == MOST_PROVED


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"token": {"secret_key": "/not/there"}},
            "authentication.token.secret_key: /not/there: cannot be read: No such",
        ),
        ({"token": {"jwks": "/dev/null"}}, "authentication.token.jwks: /dev/null: cannot be read: it is a device"),
        ({"token": {"secret_key": "data:;base64,geheim!"}}, "authentication.token.secret_key: data:: the text after"),
        ({"token": {"secret_key": "data:x"}}, "authentication.token.secret_key: data:: write data:;base64,KEY"),
        ({"basic": {"htpasswd": "/not/there"}}, "authentication.basic.htpasswd: /not/there: cannot be read: No such"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_key(section: dict[str, Any], message: str) -> None:
    (problem,) = problems({"mode": "terminate", **section})
    assert problem.startswith(message)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"token": {"secret_key": "f"}}, "token is of no use in mode passthrough: write mode: terminate"),
        ({"mode": "passthrough", "tls": True}, "tls is of no use in mode passthrough"),
        ({"broker": {"token_file": "f"}}, "broker is of no use in mode passthrough"),
        ({"mode": "terminate"}, "needs a method by which clients prove roles: give token, basic or tls"),
        ({"mode": "terminate", "token": {}}, "give secret_key, public_key or jwks"),
        ({"mode": "terminate", "token": {"secret_key": ""}}, "name a file"),
        ({"mode": "terminate", "basic": {}}, "authentication.basic.htpasswd: this key must be given"),
        ({"mode": "terminate", "tls": True}, "set tls.client_ca"),
        ({"mode": "both"}, "authentication.mode"),
    ],
)
def test_a_section_that_fits_not_together_says_key_and_remedy(
    section: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump({"authentication": section}))
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    assert any(message in problem for problem in refused.value.problems), refused.value.problems


def test_no_error_shows_anything_of_a_key(tmp_path: Path) -> None:
    secret = base64.b64encode(SECRET).decode()
    path = tmp_path / "sluice.yaml"
    path.write_text(f"authentication: {{token: {{secret_key: 'data:;base64,{secret}'}}}}")
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    assert secret[:8] not in str(refused.value)
    (problem,) = problems({"mode": "terminate", "token": {"secret_key": f"data:;base64,{secret}!"}})
    assert secret[:8] not in problem


def test_others_that_can_read_a_secret_are_told_of_at_the_start(tmp_path: Path) -> None:
    section = token_files(tmp_path)
    (tmp_path / "htpasswd").write_text(f"alice:{HASHES['apr1']}\n")
    section["basic"] = {"htpasswd": str(tmp_path / "htpasswd")}
    for name in ("secret.key", "sluice.token", "htpasswd"):
        (tmp_path / name).chmod(0o644)
    with capture_logs() as lines:
        authenticator(section)
    assert [line["key"].rpartition(".")[2] for line in lines] == ["secret_key", "htpasswd", "token_file"]


def test_every_file_is_watched_and_without_the_mode_nothing_is_loaded(tmp_path: Path) -> None:
    section = token_files(tmp_path)
    assert {path.name for path in Authentication.model_validate(section).files()} == {"secret.key", "sluice.token"}
    assert Authentication.model_validate({"mode": "terminate", "token": {"secret_key": "data:,x"}}).files() == []
    assert verifier_of(Config()) is None


def test_duplicated_key_ids_bound_nothing_and_are_tried_aside(tmp_path: Path) -> None:
    secrets = [bytes([number]) * 64 for number in range(MOST_KEYS_AT_ONCE)] + [SECRET]
    keys = [{"kty": "oct", "kid": "a", "k": base64.urlsafe_b64encode(secret).decode()} for secret in secrets]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": keys}))
    pending = Pending()
    verifier = authenticator(
        {"mode": "terminate", "token": {"jwks": str(tmp_path / "keys.json")}}, worker=lambda _name: pending
    )
    decisions: list[Identity | NotProved] = []
    for token in (signed({"sub": "billing"}, kid="a"), signed({"sub": "eve"}, OTHER_SECRET, kid="a")):
        verifier.verify_token(token, "192.0.2.7", decisions.append)
    assert decisions == []
    assert verifier.waiting == 2
    pending.go()
    assert decisions[0] == Identity("billing", "token")
    assert isinstance(decisions[1], NotProved)
    assert verifier.waiting == 0


def test_token_that_is_tried_while_keys_change_is_tried_again(tmp_path: Path) -> None:
    keys = [{"kty": "oct", "k": base64.urlsafe_b64encode(bytes([number]) * 64).decode()} for number in range(9)]
    file, pending = tmp_path / "keys.json", Pending()
    file.write_text(json.dumps({"keys": [*keys, {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET).decode()}]}))
    section = {"mode": "terminate", "token": {"jwks": str(file)}}
    verifier = authenticator(section, worker=lambda _name: pending)
    decisions: list[Identity | NotProved] = []
    verifier.verify_token(signed({"sub": "billing"}), "192.0.2.7", decisions.append)
    file.write_text(json.dumps({"keys": keys}))
    read_again(verifier)()
    pending.go()
    assert len(decisions) == 1
    assert isinstance(decisions[0], NotProved), "its key is gone"


def test_reload_takes_all_users_but_those_of_bad_lines(tmp_path: Path) -> None:
    file = tmp_path / "htpasswd"
    file.write_text(f"alice:{HASHES['sha1']}\nbob:{HASHES['sha1']}\n")
    file.chmod(0o600)
    verifier = authenticator({"mode": "terminate", "basic": {"htpasswd": str(file)}})
    file.write_text(f"# two\nalice:plain\ncarol:{HASHES['sha1']}\n")
    with capture_logs() as lines:
        read_again(verifier)()
    assert set(verifier._passwords._users) == {"carol"}
    assert [(line["log_level"], line["key"], line["file"], line["reason"][:7]) for line in lines] == [
        ("warning", "authentication.basic.htpasswd", str(file), "line 2:")
    ]
