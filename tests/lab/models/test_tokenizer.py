"""The tokenizer against known facts about BERT's uncased vocabulary, and against a tiny vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rpdp_lab.models.text import Tokenizer
from rpdp_lab.models.text.tokenizer import basic_words

from rpdp.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

TINY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "un", "##aff", "##able", "##a", "want", "##ed", ",", "b"]


@pytest.fixture
def bert(real_data: Path) -> Tokenizer:
    return Tokenizer.read(real_data / "models/all-MiniLM-L6-v2/vocab.txt")


def test_basic_words() -> None:
    assert basic_words(" \tHeLLo!how  \n Are yoU?  ") == ["hello", "!", "how", "are", "you", "?"]
    assert basic_words("H\u00e9llo nai\u0308ve") == ["hello", "naive"]
    assert basic_words("ah\u535a\u63a8zz") == ["ah", "\u535a", "\u63a8", "zz"]
    assert basic_words("it's $5-a_b \u201cq\u201d") == ["it", *"'s$5-a_b\u201cq\u201d"]
    assert basic_words("a\u0000b\u200bc\ufffdd\u00a0e") == ["abcd", "e"]
    assert basic_words("") == []


def test_greedy_longest_match() -> None:
    tokenizer = Tokenizer(TINY)
    assert tokenizer.pieces("unwanted") == ["[UNK]"], "no piece ##want: the whole word is unknown"
    assert tokenizer.pieces("unaffable, wanted") == ["un", "##aff", "##able", ",", "want", "##ed"]
    assert tokenizer.pieces("a" * 100) == ["a", *["##a"] * 99]
    assert tokenizer.pieces("a" * 101) == ["[UNK]"], "longer than any word of BERT"


def test_pairs_are_cut_at_the_longer_text() -> None:
    tokenizer = Tokenizer(TINY)
    ids, segments = tokenizer.token_ids(("a a a a a", "b"), max_length=6)
    assert [TINY[number] for number in ids] == ["[CLS]", "a", "a", "[SEP]", "b", "[SEP]"]
    assert segments == [0, 0, 0, 0, 1, 1]
    with pytest.raises(InputError, match="max_length=4 leaves no room for 2 texts"):
        tokenizer.token_ids(("a", "b"), max_length=4)


def test_batches_are_padded_to_the_longest() -> None:
    batch = Tokenizer(TINY).batch([("a",), ("a a a",)])
    assert batch.ids.tolist() == [[2, 4, 3, 0, 0], [2, 4, 4, 4, 3]]
    assert batch.mask.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert Tokenizer(TINY).batch([]).ids.shape == (0, 0)


def test_a_text_cannot_forge_special_tokens() -> None:
    assert "[SEP]" not in Tokenizer([*TINY, "[", "]", "sep"]).pieces("a [SEP] b")


def test_a_vocabulary_without_special_tokens_is_refused() -> None:
    with pytest.raises(InputError, match=r"lacks \[PAD\], \[CLS\]"):
        Tokenizer(["[UNK]", "[SEP]", "a"])


def test_known_pieces_of_bert(bert: Tokenizer) -> None:
    assert len(bert.vocabulary) == 30_522
    assert bert.pieces("embeddings") == ["em", "##bed", "##ding", "##s"]
    assert bert.pieces("Using a Transformer network is simple") == [
        *["using", "a", "transform", "##er", "network", "is", "simple"]
    ]
    assert bert.pieces("unaffable R\u00e9sum\u00e9") == ["una", "##ffa", "##ble", "resume"]


def test_known_ids_of_bert(bert: Tokenizer) -> None:
    assert bert.token_ids(("Hello, how are you?",), 64)[0] == [101, 7592, 1010, 2129, 2024, 2017, 1029, 102]
    assert bert.token_ids(("hello world",), 64)[0] == [101, 7592, 2088, 102]
