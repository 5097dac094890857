"""The words of statements and forms, from a message catalogue: one TOML file per language.

`messages/en.toml` is the reference: every catalogue has its messages, with its places to fill in, and no others. A
hospital adds a language, or its own wording, as a file of its own.
"""

from __future__ import annotations

import string
import tomllib
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCE = "en"
MONTHS = "months"
_DECIMAL_MARK, _LANGUAGE = "decimal_mark", "language"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Catalogue:
    """The messages of one language."""

    messages: Mapping[str, Any]

    def __call__(self, key: str, **values: str) -> str:
        """The message with this key, with its places filled in."""
        return str(self.messages[key]).format(**values)

    @property
    def language(self) -> str:
        """The language's tag, for HTML."""
        return str(self.messages[_LANGUAGE])

    def number(self, value: float, decimals: int = 0) -> str:
        """A number with the language's decimal mark."""
        return f"{value:.{decimals}f}".replace(".", str(self.messages[_DECIMAL_MARK]))

    def date(self, moment: str) -> str:
        """The day of a moment in ISO format, as the ledger notes it; the text itself if it is none."""
        try:
            day = datetime.fromisoformat(moment)
        except ValueError:
            return moment
        return self("date", day=str(day.day), month=str(self.messages[MONTHS][day.month - 1]), year=str(day.year))


def languages() -> list[str]:
    """The languages that come with rpdp."""
    return sorted(one.name.removesuffix(".toml") for one in _home().iterdir() if one.name.endswith(".toml"))


def load_words(language: str = REFERENCE) -> Catalogue:
    """The words of a language that comes with rpdp, or of a catalogue file whose name ends in .toml."""
    if not language.endswith(".toml"):
        if language not in languages():
            raise InputError(
                f"language={language!r} is not one of {', '.join(languages())}; for another, give a message catalogue: "
                "a file whose name ends in .toml"
            )
        return _shipped(language)
    path = Path(language)
    try:
        content = path.read_bytes()[:_MOST_BYTES]
        messages = tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not a message catalogue (TOML in UTF-8): {error}") from None
    require_complete(messages, str(path))
    return Catalogue(messages)


def require_complete(messages: Mapping[str, Any], name: str) -> None:
    """Refuse a catalogue with other messages, or other places to fill in, than the reference."""
    reference = _shipped(REFERENCE).messages
    missing, unknown = sorted(reference.keys() - messages.keys()), sorted(messages.keys() - reference.keys())
    if missing or unknown:
        said = [f"{what}: {', '.join(keys)}" for what, keys in (("missing", missing), ("unknown", unknown)) if keys]
        raise InputError(f"{name} is not a complete message catalogue; {'; '.join(said)}")
    for key, text in messages.items():
        _require_alike(f"{name}: {key}", text, reference[key])


def _require_alike(where: str, text: object, reference: object) -> None:
    if isinstance(reference, list):
        if not isinstance(text, list) or len(text) != len(reference) or not all(isinstance(one, str) for one in text):
            raise InputError(f"{where} must be a list of {len(reference)} texts")
        return
    if not isinstance(text, str):
        raise InputError(f"{where} must be a text")
    if places(text, where) != places(str(reference), where):
        raise InputError(
            f"{where} must have the places {sorted(places(str(reference), where))}, as in {REFERENCE}.toml"
        )


def places(text: str, where: str) -> set[str]:
    """The places to fill in of a message: plain names alone, so that a message cannot reach into what fills them."""
    try:
        found = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    odd = sorted(name for name in found if not name.isidentifier())
    if odd:
        raise InputError(f"{where}: {{{odd[0]}}} is not a plain name")
    return found


@cache
def _shipped(language: str) -> Catalogue:
    return Catalogue(tomllib.loads(_home().joinpath(f"{language}.toml").read_text("utf-8")))


def _home() -> Any:
    return files("rpdp.statements").joinpath("messages")
