"""Fixed features of pairs of sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from rpdp_lab.features import reduced_tasks, sentence_pairs
from rpdp_lab.models.text import Encoder, EncoderConfig, TextModel, Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "man", "runs", "sleeps"]
PAIRS = [("a dog runs", "a man"), ("a man sleeps", "a dog runs"), ("dog", "a man runs a dog sleeps")]


@pytest.fixture
def tiny() -> TextModel:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        sizes = EncoderConfig(len(VOCABULARY), 16, layers=2, heads=4, intermediate_size=32, positions=32)
        return TextModel(Encoder(sizes).requires_grad_(False).eval(), Tokenizer(VOCABULARY))


def test_an_embedding_depends_on_its_text_alone_and_ignores_padding(tiny: TextModel) -> None:
    texts = [text for pair in PAIRS for text in pair]
    together = sentence_pairs.embedded(texts, tiny, 32)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-5)
    for row, text in enumerate(texts):
        np.testing.assert_allclose(sentence_pairs.embedded([text], tiny, 32)[0], together[row], atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 1e-2


def test_features_tell_which_sentence_is_the_premise(tiny: TextModel) -> None:
    premises, hypotheses = (sentence_pairs.embedded(texts, tiny, 32) for texts in zip(*PAIRS, strict=True))
    features = sentence_pairs.compared(premises, hypotheses)
    assert features.shape == (3, 3 * 16 + 1)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(sentence_pairs.compared(premises[1:2], hypotheses[1:2]), features[1:2], atol=1e-6)
    assert np.abs(sentence_pairs.compared(hypotheses, premises) - features).max() > 1e-2


def test_the_encoder_runs_once_for_the_same_pairs(tiny: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_pairs, "load_text_model", lambda: tiny)
    first = sentence_pairs.pair_features(PAIRS, max_length=32)
    monkeypatch.setattr(sentence_pairs, "embedded", _refuse)
    np.testing.assert_array_equal(sentence_pairs.pair_features(PAIRS, max_length=32), first)
    with pytest.raises(AssertionError, match="the encoder was run"):
        sentence_pairs.pair_features(PAIRS[::-1], max_length=32)


def _refuse(*_: object) -> None:
    raise AssertionError("the encoder was run")


def test_pairs_of_real_sentences(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduced_tasks, "SNLI_SENTENCE_PAIRS", 60)
    data = reduced_tasks.snli_sentences(1)
    assert len(data.silos) == 10
    assert next(iter(data.silos.values())).train.features.shape[1] == sentence_pairs.FEATURES
    assert any("was trained on SNLI" in note for note in data.notes)
