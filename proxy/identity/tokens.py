"""JSON Web Tokens: the keys that an operator gives, and the claims of tokens that these keys have signed.

No I/O: files come as bytes, and the time is passed in. A key's kind decides which algorithms it verifies, never the
token: so no token can have a public key taken for a secret (RFC 8725, 3.1).

Source: org.apache.pulsar.broker.authentication.AuthenticationProviderToken and AuthTokenUtils
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from proxy.block_rules import MOST_ROLE
from proxy.identity.evidence import Identity, is_principal

MOST_TOKEN = 16 * 1024
"""Bytes of a token: those with the groups of a large directory have 8 KiB."""
MOST_KEYS = 100
"""Keys of a JWKS file that are served; those after them are passed over."""
_MOST_HEADER = 2048
"""Bytes of a token's first part, which is parsed before any signature is checked."""
_LEAST_SECRET = 32
"""Bytes of a secret: HS256 needs as many (RFC 7518, 3.2), and Pulsar refuses shorter ones."""
_LEAST_RSA_BITS, _MOST_RSA_BITS = 2048, 8192
_MOST_EXPONENT_BITS = 32
"""Bits of the public exponent; 65537 is usual. A signature takes 0.6 ms with the most bits of both, and 8 ms with 3,072
bits and an exponent as long: on the loop, for each token of a stranger, as its signature need not be right."""
_LAST_SECOND = 253_402_300_800
"""The end of the year 9999: a later expiry is none."""
_HMAC = (("HS256", 32), ("HS384", 48), ("HS512", 64))
"""Algorithms for secrets, each with the bytes that it needs."""
_RSA = ("RS256", "RS384", "RS512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_KINDS = ("RSA", "EC", "oct")
_MOST_REASONS, _LONGEST_SHOWN = 5, 60
"""Keys whose reasons an error names; characters of a key's `kid` that are shown."""
_WHITE = b" \t\r\n"

KeyMaterial = bytes | RSAPublicKey | EllipticCurvePublicKey


class KeyFileError(Exception):
    """A key cannot be used; the text says why and what to do, and shows nothing of the key."""


class RefusedTokenError(Exception):
    """A token proves nothing; the text says why, for the client and the operator, and shows nothing of the token."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A key, with the tokens that it verifies.

    Args:
        key: A secret or a public key.
        algorithms: The algorithms that fit its kind.
        key_id: Its `kid` in a JWKS file; empty without one.
    """

    key: KeyMaterial
    algorithms: tuple[str, ...]
    key_id: str = ""


def secret_keys(content: bytes) -> tuple[VerifyingKey, ...]:
    """Return the keys that the content of a secret's file may mean.

    Pulsar takes the bytes of a file as they are, with a line end that an editor has added, and decodes those of
    `data:;base64,…`. A file with base64 may be meant in either way, so a token may fit either. To try both weakens
    nothing: the file gives both.

    Raises:
        KeyFileError: If the content cannot be a secret.
    """
    if content.lstrip().startswith(b"-----BEGIN"):
        raise KeyFileError("holds a PEM key, not a secret: name it in public_key, if it is a public key")
    readings = [content, content.strip(_WHITE), _from_base64(content)]
    secrets = list(dict.fromkeys(each for each in readings if len(each) >= _LEAST_SECRET))
    if not secrets:
        raise KeyFileError(
            f"a secret has {_LEAST_SECRET} bytes or more; `openssl rand -out FILE 32` or `pulsar tokens "
            "create-secret-key --output FILE` makes one"
        )
    return tuple(_secret(each) for each in secrets)


def public_keys(content: bytes) -> tuple[VerifyingKey, ...]:
    """Return the public key in a file: PEM, or DER (SubjectPublicKeyInfo), or that in base64.

    Raises:
        KeyFileError: If there is none that verifies RS256, ES256 and the like.
    """
    if b"PRIVATE KEY-----" in content:
        raise KeyFileError("holds a private key; name a file with its public key alone")
    try:
        if content.lstrip().startswith(b"-----BEGIN"):
            key: object = load_pem_public_key(content)
        else:
            key = _from_der(content)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(
            "is no public key in PEM or DER; `openssl pkey -pubin -in FILE -noout -text` shows one that is"
        ) from None
    return (_public(key, ""),)


def jwks_keys(content: bytes, on_unusable: Callable[[str], None] = lambda _: None) -> tuple[VerifyingKey, ...]:
    """Return the keys of a JSON Web Key Set that verify signatures, at most MOST_KEYS; other keys are passed over.

    Source: https://www.rfc-editor.org/rfc/rfc7517#section-5

    Args:
        content: The set.
        on_unusable: Called for each key that is passed over, with its place, its `kid` and the reason.

    Raises:
        KeyFileError: If the set cannot be read, or none of its keys can be used.
    """
    try:
        entries = json.loads(content)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise KeyFileError('is no JSON Web Key Set: {"keys": [{"kty": …}, …]} belongs there') from None
    if not isinstance(entries, list):
        raise KeyFileError("`keys` must be a list of keys")
    keys: list[VerifyingKey] = []
    unusable: list[str] = []
    for at, entry in enumerate(entries, 1):
        try:
            keys.append(_of_jwk(entry, is_surplus=len(keys) == MOST_KEYS))
        except KeyFileError as error:
            unusable.append(f"key {at}{_named(entry)}: {error}")
            on_unusable(unusable[-1])
    if not keys:
        raise KeyFileError("; ".join(["has no key that can be used", *unusable[:_MOST_REASONS]]))
    return tuple(keys)


def _named(entry: object) -> str:
    key_id = entry.get("kid") if isinstance(entry, dict) else None
    return f" (kid {str(key_id)[:_LONGEST_SHOWN]!r})" if key_id else ""


def _of_jwk(entry: Any, *, is_surplus: bool) -> VerifyingKey:
    if is_surplus:
        raise KeyFileError(f"comes after {MOST_KEYS} keys for signatures, the most that are served")
    if not isinstance(entry, dict) or not isinstance(entry.get("kid", ""), str):
        raise KeyFileError("is not written as a JSON Web Key")
    key_id, kind, use, uses = entry.get("kid", ""), entry.get("kty"), entry.get("use", "sig"), entry.get("key_ops")
    if use != "sig" or (isinstance(uses, list) and not {"verify", "sign"}.intersection(map(str, uses))):
        raise KeyFileError("is not for signatures, as its use or key_ops says")
    if kind not in _KINDS:
        raise KeyFileError(f"kty {str(kind)[:20]!r} is not served here; {', '.join(_KINDS)} are")
    try:
        if kind == "oct":
            verifying = _secret(jwt.algorithms.HMACAlgorithm.from_jwk(entry), key_id)
        else:
            if len(str(entry.get("n"))) > _MOST_RSA_BITS // 4:  # to make such a key takes long as well
                raise KeyFileError(f"an RSA key of this size takes too long; at most {_MOST_RSA_BITS} bits are served")
            algorithm = jwt.algorithms.RSAAlgorithm if kind == "RSA" else jwt.algorithms.ECAlgorithm
            key: Any = algorithm.from_jwk(entry)
            verifying = _public(key.public_key() if hasattr(key, "private_numbers") else key, key_id)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, UnsupportedAlgorithm):
        raise KeyFileError(f"cannot be used as a JSON Web Key of kty {kind}") from None
    named = entry.get("alg")
    if named is None:
        return verifying
    if named not in verifying.algorithms:
        raise KeyFileError(f"alg {str(named)[:20]!r} does not fit it; {', '.join(verifying.algorithms)} would")
    return VerifyingKey(verifying.key, (named,), key_id)


def _secret(secret: bytes, key_id: str = "") -> VerifyingKey:
    fitting = tuple(name for name, least in _HMAC if len(secret) >= least)
    if not fitting:
        raise KeyFileError(f"a secret of {len(secret)} bytes is too short; {_LEAST_SECRET} or more are needed")
    return VerifyingKey(secret, fitting, key_id)


def _public(key: object, key_id: str) -> VerifyingKey:
    if isinstance(key, RSAPublicKey):
        if key.key_size < _LEAST_RSA_BITS:
            raise KeyFileError(f"an RSA key of {key.key_size} bits is too weak; {_LEAST_RSA_BITS} or more are needed")
        if key.key_size > _MOST_RSA_BITS:
            raise KeyFileError(f"an RSA key of {key.key_size} bits takes too long; at most {_MOST_RSA_BITS} are served")
        exponent = key.public_numbers().e.bit_length()
        if exponent > _MOST_EXPONENT_BITS:
            raise KeyFileError(
                f"an RSA key with an exponent of {exponent} bits takes too long; at most {_MOST_EXPONENT_BITS} are "
                "served, and 65537 is usual"
            )
        return VerifyingKey(key, _RSA, key_id)
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return VerifyingKey(key, (_CURVES[key.curve.name],), key_id)
    raise KeyFileError("is of a kind that is not served here: RSA, or EC with curve P-256, P-384 or P-521")


def _from_base64(content: bytes) -> bytes:
    """Decode base64 of either alphabet; return nothing for any other text."""
    text = content.translate(None, _WHITE).translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return b""


def _from_der(content: bytes) -> object:
    try:
        return load_der_public_key(content)
    except ValueError:
        return load_der_public_key(_from_base64(content))


class TokenVerifier:
    """Verifies tokens.

    Args:
        keys: A valid token is signed by any one key.
        claim: The claim that names the role (tokenAuthClaim).
        audience: The audience that `aud` must name (tokenAudience); None: any.
        skew_s: Seconds by which clocks may differ (tokenAllowedClockSkewSeconds): a token is valid earlier, and expires
            later, by that time.
    """

    def __init__(
        self, keys: Iterable[VerifyingKey], claim: str = "sub", audience: str | None = None, skew_s: float = 0.0
    ) -> None:
        self._keys = tuple(keys)
        self._algorithms = sorted({name for key in self._keys for name in key.algorithms})
        self._claim = claim
        self._audience = audience
        self._skew_s = skew_s
        self._signatures = jwt.PyJWS(algorithms=self._algorithms)

    def verify(self, token: bytes, now: float) -> Identity:
        """Return whose token this is.

        Args:
            token: As CONNECT has it.
            now: Seconds since 1970.

        Raises:
            RefusedTokenError: If it is not valid now, or no token.
        """
        token = token.strip(_WHITE)
        claims = self._claims(token, self._candidates(token))
        expires_at = _time(claims, "exp")
        if expires_at is not None and expires_at + self._skew_s <= now:
            raise RefusedTokenError(f"the token has expired at {_shown(expires_at)}")
        not_before = _time(claims, "nbf")
        if not_before is not None and not_before - self._skew_s > now:
            raise RefusedTokenError(f"the token is not valid before {_shown(not_before)}")
        self._check_audience(claims.get("aud"))
        return Identity(self._role(claims), "token", None if expires_at is None else expires_at + self._skew_s)

    def keys_to_try(self, token: bytes) -> int:
        """Return the number of keys that a token may have to be tried with; 0 for one that is refused before."""
        if len(self._keys) == 1:
            return 1
        try:
            return len(self._candidates(token.strip(_WHITE)))
        except RefusedTokenError:
            return 0

    def _candidates(self, token: bytes) -> list[VerifyingKey]:
        if len(token) > MOST_TOKEN:
            raise RefusedTokenError(f"the token has {len(token)} bytes, at most {MOST_TOKEN} are read")
        return self._fitting(self._header(token))

    def _claims(self, token: bytes, keys: list[VerifyingKey]) -> dict[str, Any]:
        payload = self._signed(token, keys)
        try:
            claims = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            claims = None
        if not isinstance(claims, dict):
            raise RefusedTokenError("the token's claims are no JSON object")
        return claims

    def _header(self, token: bytes) -> dict[str, Any]:
        first, *others = token.split(b".")
        if len(others) != 2 or len(first) > _MOST_HEADER or not all((first, *others[:1])):
            raise RefusedTokenError("this is no JSON Web Token: one has three parts with dots between them")
        try:
            return self._signatures.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise RefusedTokenError("the token's header cannot be read") from None

    def _fitting(self, header: dict[str, Any]) -> list[VerifyingKey]:
        algorithm, key_id = header.get("alg"), header.get("kid")
        named = [key for key in self._keys if key.key_id and key.key_id == key_id]
        if key_id and not named and all(key.key_id for key in self._keys):
            raise RefusedTokenError(f"the token names a key ({str(key_id)[:60]!r}) that is not known here")
        fitting = [key for key in named or self._keys if algorithm in key.algorithms]
        if not fitting:
            name = str(algorithm)[:20]
            raise RefusedTokenError(f"the token has alg {name!r}; keys here verify {', '.join(self._algorithms)}")
        return fitting

    def _signed(self, token: bytes, keys: list[VerifyingKey]) -> bytes:
        for key in keys:
            try:
                payload = self._signatures.decode(token, key.key, algorithms=list(key.algorithms))
            except jwt.InvalidSignatureError:
                continue
            except (jwt.PyJWTError, ValueError, RecursionError):
                raise RefusedTokenError("the token cannot be read") from None
            if isinstance(payload, bytes):
                return payload
        raise RefusedTokenError("the token's signature fits no key that is known here")

    def _check_audience(self, claim: object) -> None:
        audiences = claim if isinstance(claim, list) else [claim]
        if self._audience is not None and self._audience not in audiences:
            raise RefusedTokenError(f"the token is not for the audience {self._audience!r}")

    def _role(self, claims: dict[str, Any]) -> str:
        """Return the text of the claim, or the first of a list, as Pulsar takes it."""
        value = claims.get(self._claim)
        role = value[0] if isinstance(value, list) and value else value
        if not isinstance(role, str) or not is_principal(role):
            raise RefusedTokenError(
                f"the token's claim {self._claim!r} names no role: text in one line of 1 to {MOST_ROLE} characters"
            )
        return role


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value >= 0:  # nor is "not a number"
        raise RefusedTokenError(f"the token's claim {name!r} is no time in seconds since 1970")
    return float(min(value, _LAST_SECOND))


def _shown(moment: float) -> str:
    return datetime.fromtimestamp(min(moment, _LAST_SECOND - 1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
