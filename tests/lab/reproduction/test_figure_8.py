"""Which runs of figure 8 belong to which profile, and the features of the cheap SNLI federation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rpdp_lab.features import larger, sentences
from rpdp_lab.models.text import Encoder, EncoderConfig, TextModel, Tokenizer
from rpdp_lab.reproduction.cell import PROFILES
from rpdp_lab.reproduction.sections.figure_8 import WORDS, section
from rpdp_lab.reproduction.suites import federations as known
from rpdp_lab.reproduction.suites.federations import DISTRIBUTIONS, METHODS
from rpdp_lab.reproduction.suites.figure_8 import cells

from tests.lab.reproduction.conftest import finding

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp_lab.reproduction.cell import Profile

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "man", "runs", "sleeps"]
PAIRS = [("a dog runs", "a man"), ("a man sleeps", "a dog runs"), ("dog", "a man runs a dog sleeps")]


@pytest.fixture
def tiny() -> TextModel:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        sizes = EncoderConfig(len(VOCABULARY), 16, layers=2, heads=4, intermediate_size=32, positions=32)
        return TextModel(Encoder(sizes).requires_grad_(False).eval(), Tokenizer(VOCABULARY))


def runs(profile: Profile, federation: known.Federation) -> list[dict[str, Any]]:
    return [dict(cell.settings) for cell in cells(profile) if cell.part == federation.name]


@pytest.mark.parametrize("federation", [known.HEART, known.MNIST_IID, known.CIFAR, known.SNLI_FEATURES])
def test_quick_has_all_methods_and_distributions(federation: known.Federation) -> None:
    found = {(each["distribution"], each["method"]) for each in runs("quick", federation)}
    assert found == {(distribution, method) for distribution in DISTRIBUTIONS for method in METHODS}


@pytest.mark.parametrize("methods", [("rpdp",), ("rpdp", "minimum")], ids=["alone", "with a rival"])
def test_federations_are_drawn_where_ours_has_rivals(methods: tuple[str, ...]) -> None:
    numbers: dict[str, Any] = {"accuracy": 0.9, "by_round": [0.5, 0.9], "records": 10, "overdrawn": 0}
    chosen = [cell for cell in cells("cpu") if cell.part == known.MNIST_IID_CNN.name]
    found = section([finding(cell, **numbers) for cell in chosen if cell.settings["method"] in methods])
    assert (known.MNIST_IID_CNN.name in found.figures["figure-8.svg"]) == (len(methods) > 1)


def test_the_papers_models_stay_in_quick() -> None:
    assert [each["method"] for each in runs("quick", known.CIFAR_RESNET)] == ["rpdp"]
    assert {each["method"] for each in runs("quick", known.SNLI)} == {"rpdp", "privacy_free"}


def test_full_has_the_papers_schedule() -> None:
    for federation, schedule in ((known.CIFAR_RESNET, (30, 50)), (known.CIFAR, (30, 50)), (known.SNLI, (15, 50))):
        found = {(each["schedule"]["rounds"], each["schedule"]["local_steps"]) for each in runs("full", federation)}
        assert found == {schedule}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_federation_is_described(profile: Profile) -> None:
    parts = {cell.part for cell in cells(profile)} - {"budgets"}
    assert parts <= set(WORDS)


def test_an_embedding_depends_on_its_text_alone_and_ignores_padding(tiny: TextModel) -> None:
    texts = [text for pair in PAIRS for text in pair]
    together = sentences.embedded(texts, tiny, 32)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-5)
    for row, text in enumerate(texts):
        np.testing.assert_allclose(sentences.embedded([text], tiny, 32)[0], together[row], atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 1e-2


def test_features_tell_which_sentence_is_the_premise(tiny: TextModel) -> None:
    premises, hypotheses = (sentences.embedded(texts, tiny, 32) for texts in zip(*PAIRS, strict=True))
    features = sentences.compared(premises, hypotheses)
    assert features.shape == (3, 3 * 16 + 1)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(sentences.compared(premises[1:2], hypotheses[1:2]), features[1:2], atol=1e-6)
    assert np.abs(sentences.compared(hypotheses, premises) - features).max() > 1e-2


def test_the_encoder_runs_once_for_the_same_pairs(tiny: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "load_text_model", lambda: tiny)
    first = sentences.pair_features(PAIRS, max_length=32)
    monkeypatch.setattr(sentences, "embedded", _refuse)
    np.testing.assert_array_equal(sentences.pair_features(PAIRS, max_length=32), first)
    with pytest.raises(AssertionError, match="the encoder was run"):
        sentences.pair_features(PAIRS[::-1], max_length=32)


def _refuse(*_: object) -> None:
    raise AssertionError("the encoder was run")


def test_the_head_has_as_many_parameters_as_it_says() -> None:
    assert sum(value.numel() for value in larger.sentence_head().parameters()) == 3_462


def test_pairs_of_real_sentences(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(larger, "SNLI_SENTENCE_PAIRS", 60)
    data = larger.snli_sentences(1)
    assert len(data.silos) == 10
    assert next(iter(data.silos.values())).train.features.shape[1] == sentences.FEATURES
    assert any("was trained on SNLI" in note for note in data.notes)
