"""The uncased WordPiece tokenizer of BERT (Devlin et al. 2019, arXiv 1810.04805), from the `tokenizers` library.

No special token is registered with the library, so "[SEP]" inside a sentence is plain text: a record cannot forge the
structure of its input. [CLS] and [SEP] are added here, as ids.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tokenizers
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

PADDING, UNKNOWN, START, SEPARATOR = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


@dataclass(frozen=True)
class TokenBatch:
    """Token ids, segment numbers (0 or 1) and mask (True where there is a token), all (texts, tokens)."""

    ids: NDArray[np.int64]
    segments: NDArray[np.int64]
    mask: NDArray[np.bool_]


class Tokenizer:
    """Texts, or pairs of texts, to token ids.

    Args:
        vocabulary: The word pieces; a piece's id is its position.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        missing = [piece for piece in (PADDING, UNKNOWN, START, SEPARATOR) if piece not in self._ids]
        if missing:
            raise InputError(f"the vocabulary lacks {', '.join(missing)}")
        self.vocabulary = tuple(vocabulary)
        self._word_pieces = tokenizers.Tokenizer(WordPiece(self._ids, unk_token=UNKNOWN))
        self._word_pieces.normalizer = BertNormalizer(lowercase=True)
        self._word_pieces.pre_tokenizer = BertPreTokenizer()

    @classmethod
    def read(cls, path: Path) -> Tokenizer:
        """The tokenizer of a `vocab.txt` with one piece per line."""
        return cls(path.read_text(encoding="utf8").split("\n")[:-1])

    def fingerprint(self) -> str:
        """SHA-256 of the vocabulary."""
        return hashlib.sha256("\n".join(self.vocabulary).encode()).hexdigest()

    def pieces(self, text: str) -> list[str]:
        """The word pieces of a text, without [CLS] and [SEP]."""
        return [self.vocabulary[number] for number in self._piece_ids(text)]

    def token_ids(self, texts: Sequence[str], max_length: int) -> tuple[list[int], list[int]]:
        """Ids and segment numbers of [CLS] text [SEP], or of [CLS] text [SEP] text [SEP] for a pair.

        Texts that are too long lose pieces at the end of the longer one, one piece at a time.
        """
        if max_length < 2 * len(texts) + 1:
            raise InputError(f"max_length={max_length} leaves no room for {len(texts)} texts")
        pieces = [self._piece_ids(text) for text in texts]
        while sum(map(len, pieces)) + len(texts) + 1 > max_length:
            max(reversed(pieces), key=len).pop()
        ids, segments = [self._ids[START]], [0]
        for segment, part in enumerate(pieces):
            ids += [*part, self._ids[SEPARATOR]]
            segments += [segment] * (len(part) + 1)
        return ids, segments

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

    def _piece_ids(self, text: str) -> list[int]:
        ids: list[int] = self._word_pieces.encode(text, add_special_tokens=False).ids
        return ids


def basic_words(text: str) -> list[str]:
    """Words, punctuation marks and CJK characters of a text, in lower case and without accents.

    >>> basic_words("Café, 5€?")
    ['cafe', ',', '5€', '?']
    """
    plain = BertNormalizer(lowercase=True).normalize_str(text)
    return [word for word, _ in BertPreTokenizer().pre_tokenize_str(plain)]
