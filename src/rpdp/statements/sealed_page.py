"""An encrypted page: one HTML file that opens offline, in any browser, with the passphrase.

AES-256-GCM with a key that scrypt derives from the passphrase, so that guessing costs memory as well as time. The
browser decrypts with WebCrypto; the page shows nothing and names nobody until then, and loads nothing at all.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import unicodedata
from importlib.resources import files
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from rpdp.errors import InputError
from rpdp.statements.page_templates import render_page

if TYPE_CHECKING:
    from rpdp.statements.statement_words import Catalogue

FORMAT = "rpdp-sealed-page/1"
LEAST_CHARACTERS = 12
_COST, _BLOCK, _LANES = 1 << 15, 8, 1
"""scrypt's N, r and p: 32 MB for every guess, less than a second in a browser."""

_SALT_BYTES, _NONCE_BYTES, _KEY_BYTES = 16, 12, 32


def sealed_page(page: str, passphrase: str, words: Catalogue) -> str:
    """Return a page that asks for the passphrase, and then shows this page.

    Args:
        page: A page without scripts.
        passphrase: At least twelve characters; given to the person by another way than the page.
        words: The language in which the sealed page asks.
    """
    secret = unicodedata.normalize("NFC", passphrase)
    if len(secret) < LEAST_CHARACTERS:
        raise InputError(f"a passphrase of {len(secret)} characters is guessed; take {LEAST_CHARACTERS} or more")
    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    key = Scrypt(salt, _KEY_BYTES, n=_COST, r=_BLOCK, p=_LANES).derive(secret.encode())
    script = files("rpdp.statements").joinpath("templates/sealed.js").read_text("utf-8")
    return render_page(
        "sealed.html.j2",
        words,
        format=FORMAT,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        cost=_COST,
        block=_BLOCK,
        salt=base64.b64encode(salt).decode(),
        nonce=base64.b64encode(nonce).decode(),
        sealed=base64.b64encode(AESGCM(key).encrypt(nonce, page.encode(), FORMAT.encode())).decode(),
    )
