"""In which role a client connects, read from its CONNECT.

The proxy verifies nothing: it reads what the client claims, and the broker, which gets the same bytes, checks the
signature or password. A role counts because the broker answered CONNECTED; where brokers do not authenticate, it is no
more than a claim. The broker lets no client change its role while connected (AUTH_RESPONSE).
"""

import base64
import binascii

import msgspec

MOST_ROLE = 256
"""Characters of a role; a longer one counts as none."""
_MOST_AUTH_DATA = 64 * 1024
_NO_LETTERS = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
"""What stands for nothing in a token."""


class _Claims(msgspec.Struct):
    """Of a token's claims the one that Pulsar takes by default (tokenAuthClaim)."""

    sub: str = ""


def role_of(auth_method: str, auth_data: bytes) -> str:
    """The subject of a `token` (a JWT), or the user of `basic`; empty for other methods and for what cannot be read.

    Source: org.apache.pulsar.broker.authentication.{AuthenticationProviderToken, AuthenticationProviderBasic}
    """
    if len(auth_data) > _MOST_AUTH_DATA:
        return ""
    role = ""
    if auth_method == "token":
        role = _subject(auth_data)
    elif auth_method == "basic":
        role = auth_data.partition(b":")[0].decode(errors="replace")
    return role if len(role) <= MOST_ROLE and role.isprintable() else ""


def _subject(token: bytes) -> str:
    """Of every token that a broker accepts the subject that it reads there; of others perhaps one, too.

    A broker's decoder passes over blanks around a part of the token, over line ends in it, and over its padding. So
    whatever is no letter of the alphabet is left out here: a token that would then be another one has a signature that
    does not fit.

    Source: io.jsonwebtoken.impl.DefaultJwtParser (Strings.clean) and io.jsonwebtoken.io.Base64.decodeFast (0.11)
    """
    parts = token.split(b".")
    if len(parts) != 3:
        return ""
    letters = parts[1].translate(None, _NO_LETTERS)
    try:
        claims = base64.urlsafe_b64decode(letters + b"=" * (-len(letters) % 4))
        return msgspec.json.decode(claims, type=_Claims).sub
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
