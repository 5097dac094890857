"""The uncased WordPiece tokenizer of BERT (Devlin et al. 2019, arXiv 1810.04805).

First plain words: lower case, accents stripped, white space and control characters cleaned, punctuation and
CJK characters set apart. Then each word becomes the longest pieces of the vocabulary, from left to right;
pieces inside a word start with "##", and a word that cannot be made of pieces becomes [UNK]. Text such as
"[SEP]" inside a sentence is taken as plain text, so a record cannot forge the structure of its input.
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

PADDING, UNKNOWN, START, SEPARATOR = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
_LONGEST_WORD = 100  # characters; longer words become [UNK], as in BERT
_CJK_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")  # "$" and the like count, unlike in Unicode


@dataclass(frozen=True)
class TokenBatch:
    """Token ids, segment numbers (0 or 1) and mask (True where there is a token), all (texts, tokens)."""

    ids: NDArray[np.int64]
    segments: NDArray[np.int64]
    mask: NDArray[np.bool_]


class Tokenizer:
    """Texts, or pairs of texts, to token ids.

    Args:
        vocabulary: The pieces; a piece's id is its position.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        missing = [piece for piece in (PADDING, UNKNOWN, START, SEPARATOR) if piece not in self._ids]
        if missing:
            raise InputError(f"the vocabulary lacks {', '.join(missing)}")
        self.vocabulary = tuple(vocabulary)
        self._word_pieces = lru_cache(maxsize=1 << 16)(self._split_word)

    @classmethod
    def read(cls, path: Path) -> Tokenizer:
        """The tokenizer of a `vocab.txt` with one piece a line."""
        return cls(path.read_text(encoding="utf8").split("\n")[:-1])

    def fingerprint(self) -> str:
        """SHA-256 of the vocabulary."""
        return hashlib.sha256("\n".join(self.vocabulary).encode()).hexdigest()

    def pieces(self, text: str) -> list[str]:
        """The word pieces of a text, without [CLS] and [SEP]."""
        return [piece for word in basic_words(text) for piece in self._word_pieces(word)]

    def token_ids(self, texts: Sequence[str], max_length: int) -> tuple[list[int], list[int]]:
        """Ids and segment numbers of [CLS] text [SEP], or [CLS] text [SEP] text [SEP] for a pair.

        What is too long loses pieces at the end of the longer text, one by one.
        """
        if max_length < 2 * len(texts) + 1:
            raise InputError(f"max_length={max_length} leaves no room for {len(texts)} texts")
        pieces = [self.pieces(text) for text in texts]
        while sum(map(len, pieces)) + len(texts) + 1 > max_length:
            max(reversed(pieces), key=len).pop()
        tokens, segments = [START], [0]
        for segment, part in enumerate(pieces):
            tokens += [*part, SEPARATOR]
            segments += [segment] * (len(part) + 1)
        return [self._ids[token] for token in tokens], segments

    def batch(self, texts: Sequence[Sequence[str]], max_length: int = 128) -> TokenBatch:
        """The token ids of several texts or pairs, padded to the longest of them."""
        encoded = [self.token_ids(parts, max_length) for parts in texts]
        width = max((len(ids) for ids, _ in encoded), default=0)
        ids = np.full((len(encoded), width), self._ids[PADDING], dtype=np.int64)
        segments = np.zeros_like(ids)
        mask = np.zeros(ids.shape, dtype=np.bool_)
        for row, (tokens, parts) in enumerate(encoded):
            ids[row, : len(tokens)] = tokens
            segments[row, : len(parts)] = parts
            mask[row, : len(tokens)] = True
        return TokenBatch(ids, segments, mask)

    def _split_word(self, word: str) -> tuple[str, ...]:
        """Greedy longest match from the left."""
        if len(word) > _LONGEST_WORD:
            return (UNKNOWN,)
        pieces = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in self._ids), None)
            if end is None:
                return (UNKNOWN,)
            pieces.append(prefix + word[start:end])
            start = end
        return tuple(pieces)


def basic_words(text: str) -> list[str]:
    """Words, punctuation marks and CJK characters of a text, in lower case and without accents.

    >>> basic_words("Café, 5€?")
    ['cafe', ',', '5€', '?']
    """
    lowered = unicodedata.normalize("NFD", "".join(_clean(text)).lower())
    plain = "".join(character for character in lowered if unicodedata.category(character) != "Mn")
    return "".join(f" {c} " if _is_punctuation(c) else c for c in plain).split()


def _clean(text: str) -> Iterator[str]:
    """The characters of a text without control characters, with plain spaces, CJK characters set apart."""
    for character in text:
        category = unicodedata.category(character)
        if character in "\t\n\r" or category == "Zs":
            yield " "
        elif _is_cjk(ord(character)):
            yield f" {character} "
        elif character != "\ufffd" and not category.startswith("C"):
            yield character


def _is_cjk(point: int) -> bool:
    return any(low <= point <= high for low, high in _CJK_BLOCKS)


def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")
