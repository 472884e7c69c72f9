"""Keys and tokens for tests."""

from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SECRET = bytes(range(64))
OTHER_SECRET = bytes(range(1, 65))
RSA = rsa.generate_private_key(65537, 2048)
P256, P384, P521 = (ec.generate_private_key(curve()) for curve in (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1))
NOW = 1_700_000_000.0


def signed(claims: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> bytes:
    return jwt.encode(claims, key, algorithm, headers).encode()


def public(key: Any, encoding: Encoding = Encoding.PEM) -> bytes:
    encoded: bytes = key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    return encoded


def token_files(folder: Path, secret: bytes = SECRET) -> dict[str, Any]:
    """Section `authentication` with tokens, its files in a folder."""
    (folder / "secret.key").write_bytes(secret)
    (folder / "sluice.token").write_bytes(signed({"sub": "sluice"}, secret))
    for name in ("secret.key", "sluice.token"):
        (folder / name).chmod(0o600)
    return {
        "mode": "terminate",
        "token": {"secret_key": str(folder / "secret.key")},
        "broker": {"token_file": str(folder / "sluice.token")},
    }
