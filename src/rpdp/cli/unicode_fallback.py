"""Plain text for terminals that cannot show Greek letters and signs: ε is printed as epsilon."""

from __future__ import annotations

import codecs
import io
import sys

_SPELLED = {
    "ε": "epsilon",
    "δ": "delta",
    "σ": "sigma",
    "Σ": "sum ",
    "λ": "lambda",
    "τ": "tau",
    "ρ": "rho",
    "Π": "Pi",
    "×": "x",
    "·": "|",
    "–": "-",
    "−": "-",
    "…": "...",
    "¼": "1/4 ",
    "½": "1/2 ",
    "²": "^2",
    "←": "<-",
    "→": "->",
    "±": "+/-",
    "η": "eta",
    "μ": "mu",
    "≤": "<=",
    "≥": ">=",
}
_HANDLER = "rpdp-spelled"


def install() -> None:
    """From now on, spell out what the output streams cannot encode."""
    codecs.register_error(_HANDLER, _handle)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def has_unicode() -> bool:
    """Whether standard output can show every character."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")


def spelled(text: str) -> str:
    """The text as standard output will show it. Spell before laying out a table, so that columns stay straight."""
    if has_unicode():
        return text
    return "".join(_plain(character) for character in text)


def _plain(character: str) -> str:
    try:
        character.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return _SPELLED.get(character) or character.encode("ascii", "backslashreplace").decode()
    return character


def _handle(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    piece = error.object[error.start : error.end]
    plain = "".join(_SPELLED.get(one) or one.encode("ascii", "backslashreplace").decode() for one in piece)
    return plain, error.end
