"""Tokens, and the keys that verify them."""

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.utils import to_base64url_uint

from proxy.block_rules import MOST_ROLE
from proxy.identity.evidence import Identity
from proxy.identity.tokens import (
    MOST_KEYS,
    MOST_TOKEN,
    KeyFileError,
    RefusedTokenError,
    TokenVerifier,
    jwks_keys,
    public_keys,
    secret_keys,
)
from tests.proxy.identity.keys import NOW, OTHER_SECRET, P256, P384, P521, RSA, SECRET, public, signed

BY_SECRET = TokenVerifier(secret_keys(SECRET))
BY_RSA = TokenVerifier(public_keys(public(RSA)))
PEM = public(RSA)


def why(token: bytes, verifier: TokenVerifier = BY_SECRET) -> str:
    with pytest.raises(RefusedTokenError) as refused:
        verifier.verify(token, NOW)
    return str(refused.value)


def without_keys(value: object) -> str:
    """What a case is called: keys differ from run to run, and tests of two processes must be called alike."""
    return value if isinstance(value, str) else "it"


def part(value: Any) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


def by_hand(header: Any, claims: Any, secret: bytes = SECRET) -> bytes:
    """A token whose HMAC is right, whatever its parts say."""
    signing_input = part(header) + b"." + part(claims)
    return signing_input + b"." + part(hmac.digest(secret, signing_input, hashlib.sha256))


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_verifies_what_it_signed(algorithm: str) -> None:
    identity = BY_SECRET.verify(signed({"sub": "billing", "exp": NOW + 5}, algorithm=algorithm), NOW)
    assert identity == Identity("billing", "token", NOW + 5)


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "RS384"), (RSA, "RS512"), (P256, "ES256"), (P384, "ES384"), (P521, "ES512")],
    ids=without_keys,
)
def test_a_public_key_verifies_what_its_private_one_signed(key: Any, algorithm: str, encoding: Encoding) -> None:
    verifier = TokenVerifier(public_keys(public(key, encoding)))
    assert verifier.verify(signed({"sub": "billing"}, key, algorithm), NOW) == Identity("billing", "token", None)


def test_a_public_key_in_base64_is_one() -> None:
    keys = public_keys(base64.b64encode(public(RSA, Encoding.DER)))
    assert TokenVerifier(keys).verify(signed({"sub": "billing"}, RSA, "RS256"), NOW).role == "billing"


@pytest.mark.parametrize(
    "content",
    [
        SECRET,
        base64.b64encode(SECRET),
        base64.b64encode(SECRET) + b"\n",
        base64.urlsafe_b64encode(SECRET).rstrip(b"="),
    ],
    ids=without_keys,
)
def test_a_secret_is_taken_as_it_is_or_in_base64(content: bytes) -> None:
    assert TokenVerifier(secret_keys(content)).verify(signed({"sub": "billing"}), NOW).role == "billing"


def test_the_text_of_a_secret_in_base64_is_one_too_as_pulsar_takes_a_file() -> None:
    text = base64.b64encode(SECRET)
    for key in (text, text + b"\n"):
        assert TokenVerifier(secret_keys(text + b"\n")).verify(signed({"sub": "billing"}, key), NOW).role == "billing"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (part({"alg": "none"}) + b"." + part({"sub": "eve"}) + b".", "alg 'none'"),
        (by_hand({"alg": "None"}, {"sub": "eve"}), "alg 'None'"),
        (by_hand({}, {"sub": "eve"}), "alg 'None'"),
        (by_hand({"alg": ["HS256"]}, {"sub": "eve"}), "alg"),
        (by_hand({"alg": "HS256", "crit": ["b64"], "b64": False}, {"sub": "eve"}), "read"),
        (signed({"sub": "eve"}, OTHER_SECRET), "signature"),
        (signed({"sub": "eve"}, RSA, "RS256"), "alg 'RS256'"),
        (signed({"sub": "eve", "exp": NOW}), "expired at 2023-11-14T22:13:20Z"),
        (signed({"sub": "eve", "exp": 0}), "expired"),
        (signed({"sub": "eve", "nbf": NOW + 1}), "is not valid before 2023-11-14T22:13:21Z"),
        (by_hand({"alg": "HS256"}, {"sub": "eve", "exp": "soon"}), "'exp'"),
        (by_hand({"alg": "HS256"}, {"sub": "eve", "exp": True}), "'exp'"),
        (by_hand({"alg": "HS256"}, {"sub": "eve", "exp": -1}), "'exp'"),
        (by_hand({"alg": "HS256"}, {"sub": "eve", "exp": -(10**400)}), "'exp'"),
        (by_hand({"alg": "HS256"}, {"sub": "eve", "nbf": 10**400}), "is not valid before 9999-12-31T23:59:59Z"),
        (by_hand({"alg": "HS256"}, b'{"sub": "eve", "exp": NaN}'), "no JSON"),
        (by_hand({"alg": "HS256"}, b'{"sub": "eve", "exp": 1e999}'), "no"),
        (by_hand({"alg": "HS256"}, {"sub": ""}), "names no role"),
        (by_hand({"alg": "HS256"}, {"sub": "  "}), "names no role"),
        (by_hand({"alg": "HS256"}, {"sub": 7}), "names no role"),
        (by_hand({"alg": "HS256"}, {"sub": []}), "names no role"),
        (by_hand({"alg": "HS256"}, {"sub": "two\nlines"}), "names no role"),
        (by_hand({"alg": "HS256"}, {"sub": "r" * (MOST_ROLE + 1)}), "names no role"),
        (by_hand({"alg": "HS256"}, {"role": "eve"}), "names no role"),
        (by_hand({"alg": "HS256"}, ["sub", "eve"]), "no JSON object"),
        (by_hand({"alg": "HS256"}, b"\xff\xfe"), "no JSON object"),
        (by_hand({"alg": "HS256"}, b"[" * 5_000), "no JSON object"),
        (by_hand(b"[" * 1_400, {"sub": "eve"}), "header cannot be read"),
        (b"." * 2, "no JSON Web Token"),
        (b"e30.e30", "no JSON Web Token"),
        (b"\xff.\xff.\xff", "header cannot be read"),
        (b"", "no JSON Web Token"),
        (b"a" * MOST_TOKEN + b".b.c", f"at most {MOST_TOKEN} are read"),
        (b"." * (MOST_TOKEN + 1), f"at most {MOST_TOKEN} are read"),
    ],
    ids=without_keys,
)
def test_everything_else_is_refused_with_the_reason(token: bytes, reason: str) -> None:
    assert reason in why(token)


def test_no_reason_shows_anything_of_a_signature() -> None:
    token = signed({"sub": "billing", "exp": 1})
    assert token.rpartition(b".")[2].decode() not in why(token)


@pytest.mark.parametrize("secret", [PEM, public(RSA, Encoding.DER), PEM.strip()], ids=without_keys)
def test_a_public_key_is_no_secret_whatever_a_token_says_of_it(secret: bytes) -> None:
    """RFC 8725, 2.1: whoever knows the public key could sign else."""
    assert "alg 'HS256'" in why(by_hand({"alg": "HS256"}, {"sub": "eve"}, secret), BY_RSA)


def test_a_secret_that_is_too_short_for_an_algorithm_verifies_none_of_it() -> None:
    short = TokenVerifier(secret_keys(SECRET[:32]))
    assert short.verify(signed({"sub": "billing"}, SECRET[:32]), NOW).role == "billing"
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = signed({"sub": "billing"}, SECRET[:32], "HS512")
    assert "alg 'HS512'" in why(token, short)


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        ({"exp": NOW - 2}, True),
        ({"exp": NOW - 3}, False),
        ({"nbf": NOW + 3}, True),
        ({"nbf": NOW + 4}, False),
        ({"iat": NOW + 100}, True),
    ],
)
def test_clocks_may_differ_by_the_allowed_skew(claims: dict[str, float], fits: bool) -> None:  # noqa: FBT001 - a column
    """As with a broker's tokenAllowedClockSkewSeconds; a broker checks no iat."""
    verifier, token = TokenVerifier(secret_keys(SECRET), skew_s=3), by_hand({"alg": "HS256"}, {"sub": "a", **claims})
    if "iat" not in claims:
        assert "the token" in why(token), "without a skew"
    if fits:
        expires_at = claims["exp"] + 3 if "exp" in claims else None
        assert verifier.verify(token, NOW).expires_at == expires_at, "the session ends as much later"
    else:
        assert "the token" in why(token, verifier)


@pytest.mark.parametrize(
    ("audience", "claim", "fits"),
    [
        (None, None, True),
        (None, "other", True),
        ("sluice", "sluice", True),
        ("sluice", ["other", "sluice"], True),
        ("sluice", "other", False),
        ("sluice", ["other"], False),
        ("sluice", None, False),
        ("sluice", {"sluice": 1}, False),
    ],
)
def test_a_token_is_for_its_audience(audience: str | None, claim: Any, fits: bool) -> None:  # noqa: FBT001 - a column
    verifier = TokenVerifier(secret_keys(SECRET), audience=audience)
    token = by_hand({"alg": "HS256"}, {"sub": "billing"} | ({} if claim is None else {"aud": claim}))
    if fits:
        assert verifier.verify(token, NOW).role == "billing"
    else:
        assert "audience 'sluice'" in why(token, verifier)


def test_another_claim_may_name_the_role_and_the_first_of_a_list_counts() -> None:
    verifier = TokenVerifier(secret_keys(SECRET), claim="roles")
    assert verifier.verify(signed({"sub": "eve", "roles": ["billing", "other"]}), NOW).role == "billing"


def jwk(key: Any, **more: Any) -> dict[str, Any]:
    if isinstance(key, bytes):
        return {"kty": "oct", "k": part(key).decode(), **more}
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    fields: dict[str, Any] = kind.to_jwk(key.public_key(), as_dict=True)
    return {**fields, **more}


def as_base64(number: int) -> str:
    return to_base64url_uint(number).decode()


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_a_key_set_has_a_key_for_each_id_and_kind() -> None:
    verifier = TokenVerifier(jwks_keys(jwks(jwk(RSA, kid="a"), jwk(P256, kid="b"), jwk(SECRET, kid="c"))))
    for key, algorithm, key_id in ((RSA, "RS256", "a"), (P256, "ES256", "b"), (SECRET, "HS256", "c")):
        assert verifier.verify(signed({"sub": "billing"}, key, algorithm, kid=key_id), NOW).role == "billing"
        assert verifier.verify(signed({"sub": "billing"}, key, algorithm), NOW).role == "billing"
    assert "alg 'RS256'" in why(signed({"sub": "billing"}, RSA, "RS256", kid="b"), verifier)
    assert "not known here" in why(signed({"sub": "billing"}, RSA, "RS256", kid="z"), verifier)
    assert "signature" in why(signed({"sub": "billing"}, OTHER_SECRET, kid="c"), verifier)


def _unusable() -> dict[str, tuple[object, str]]:
    weak = rsa.generate_private_key(65537, 1024)
    koblitz = ec.generate_private_key(ec.SECP256K1())
    return {
        "another algorithm": (jwk(RSA, alg="PS256"), "alg 'PS256' does not fit it; RS256, RS384, RS512 would"),
        "weak": (jwk(weak), "an RSA key of 1024 bits is too weak; 2048 or more are needed"),
        "large": (
            jwk(RSA, n=as_base64(2**8192 + 1)),
            "an RSA key of 8193 bits takes too long; at most 8192 are served",
        ),
        "huge": (jwk(RSA, n=as_base64(2**20_000 + 1)), "an RSA key of this size takes too long; at most 8192 bits"),
        "exponent": (jwk(RSA, e=as_base64(2**32 + 1)), "an RSA key with an exponent of 33 bits takes too long"),
        "curve": (json.loads(jwt.algorithms.ECAlgorithm.to_jwk(koblitz.public_key())), "EC with curve P-256"),
        "short": ({"kty": "oct", "k": "c2hvcnQ"}, "a secret of 5 bytes is too short"),
        "kind": ({"kty": "OKP", "crv": "Ed25519", "x": "AA"}, "kty 'OKP' is not served here; RSA, EC, oct are"),
        "no kind": ({}, "kty 'None' is not served here"),
        "encryption": (jwk(RSA, use="enc"), "is not for signatures"),
        "operations": (jwk(RSA, key_ops=["encrypt"]), "is not for signatures"),
        "no base64": ({"kty": "RSA", "n": "!", "e": "AQAB"}, "cannot be used as a JSON Web Key of kty RSA"),
        "missing": ({"kty": "RSA", "e": "AQAB"}, "cannot be used as a JSON Web Key of kty RSA"),
        "off the curve": ({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, "cannot be used as a JSON Web Key"),
        "no object": (7, "is not written as a JSON Web Key"),
        "no text": (jwk(RSA) | {"kid": 7}, "is not written as a JSON Web Key"),
        "list": ([], "is not written as a JSON Web Key"),
        "null": (None, "is not written as a JSON Web Key"),
    }


_UNUSABLE = _unusable()


def test_keys_after_the_most_that_are_served_are_passed_over() -> None:
    """A key that was taken out verifies nothing, though there are too many others: the set is no mistake as a whole."""
    texts: list[str] = []
    ids = [str(number) for number in range(MOST_KEYS + 2)]
    keys = jwks_keys(jwks(*(jwk(SECRET, kid=each) for each in ids)), texts.append)
    assert [key.key_id for key in keys] == ids[:MOST_KEYS]
    assert [text.partition(":")[0] for text in texts] == ["key 101 (kid '100')", "key 102 (kid '101')"]
    assert "comes after 100 keys" in texts[0]


def test_largest_rsa_key_and_exponent_are_served() -> None:
    (key,) = jwks_keys(jwks(jwk(RSA, n=as_base64(2**8192 - 1), e=as_base64(2**32 - 1))))
    assert key.algorithms == ("RS256", "RS384", "RS512")


@pytest.mark.parametrize("flaw", _UNUSABLE)
def test_unusable_key_of_a_set_is_passed_over_alone(flaw: str) -> None:
    key, reason = _UNUSABLE[flaw]
    named = {**key, "kid": "its-name"} if isinstance(key, dict) and "kid" not in key else key
    texts: list[str] = []
    keys = jwks_keys(json.dumps({"keys": [jwk(P256, kid="a"), named, jwk(SECRET, kid="b")]}).encode(), texts.append)
    assert [key.key_id for key in keys] == ["a", "b"]
    (text,) = texts
    assert text.startswith("key 2 (kid 'its-name'): " if named is not key else "key 2")
    assert reason in text
    with pytest.raises(KeyFileError, match="has no key that can be used; key 1"):
        jwks_keys(json.dumps({"keys": [named]}).encode())


def test_a_private_key_in_a_set_verifies_as_its_public_one() -> None:
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA))
    assert TokenVerifier(jwks_keys(jwks(private))).verify(signed({"sub": "b"}, RSA, "RS256"), NOW).role == "b"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no JSON Web Key Set"),
        (b"{}", "no JSON Web Key Set"),
        (b"[]", "no JSON Web Key Set"),
        (b'{"keys": {}}', "must be a list"),
        (b'{"keys": []}', "no key that can be used"),
    ],
    ids=without_keys,
)
def test_a_key_set_that_cannot_be_used_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(KeyFileError) as refused:
        jwks_keys(content)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "32 bytes or more"),
        (b"short", "32 bytes or more"),
        (PEM, "not a secret: name it in public_key"),
    ],
    ids=without_keys,
)
def test_a_secret_that_cannot_be_used_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(KeyFileError) as refused:
        secret_keys(content)
    assert reason in str(refused.value)


PRIVATE = RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no public key"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "no public key"),
        (PRIVATE, "holds a private key"),
        (public(ed25519.Ed25519PrivateKey.generate()), "not served here"),
        (public(ec.generate_private_key(ec.SECP256K1())), "not served here"),
        (public(rsa.generate_private_key(65537, 1024)), "too weak"),
    ],
    ids=without_keys,
)
def test_a_public_key_that_cannot_be_used_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(KeyFileError) as refused:
        public_keys(content)
    assert reason in str(refused.value)


GENUINE = [signed({"sub": "billing"}), signed({"sub": "billing", "exp": NOW + 5, "nbf": 1})]
MANGLED = st.builds(
    lambda token, at, change: token[: at % len(token)] + change + token[at % len(token) + len(change) :],
    st.sampled_from(GENUINE),
    st.integers(0, 10_000),
    st.binary(min_size=1, max_size=4),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["alg", "kid", "sub", "exp"]), inner),
    max_leaves=8,
)


@given(
    st.binary(max_size=200) | MANGLED | st.builds(lambda a, b, c: b".".join((a, b, c)), *[st.binary(max_size=60)] * 3)
)
def test_bytes_that_nobody_signed_are_refused_and_nothing_else_happens(token: bytes) -> None:
    for verifier in (BY_SECRET, BY_RSA):
        try:
            identity = verifier.verify(token, NOW)
        except RefusedTokenError:
            continue
        assert identity.role == "billing", (
            "only what was changed behind the last bits of a signature is still its token"
        )
        assert token.rpartition(b".")[0] in {genuine.rpartition(b".")[0] for genuine in GENUINE}


@given(JSON, JSON)
def test_whatever_a_signer_writes_is_a_role_or_refused(header: Any, claims: Any) -> None:
    jose_header = {"alg": "HS256", **header} if isinstance(header, dict) else header
    try:
        identity = BY_SECRET.verify(by_hand(jose_header, claims), NOW)
    except RefusedTokenError:
        return
    assert isinstance(identity.role, str)
    assert 0 < len(identity.role) <= MOST_ROLE
    assert identity.expires_at is None or identity.expires_at > NOW
