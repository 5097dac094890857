"""The encoder against its publisher's numbers, the cached top against the whole classifier, the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from rpdp_lab.models.text import (
    Encoder,
    EncoderConfig,
    TextClassifier,
    TextHead,
    TextModel,
    TokenBatch,
    Tokenizer,
    encode_dataset,
    load_text_model,
)
from rpdp_lab.models.text.pretrained import encoder_from_tensors
from torch.func import functional_call, grad, vmap

from rpdp.errors import InputError
from rpdp.tasks.dataset import Dataset
from rpdp.tasks.models.losses import cross_entropy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PAIRS = [
    ("A man is playing a guitar.", "Somebody makes music."),
    ("Two dogs run across a wide green field while it rains.", "The animals are asleep."),
    ("Snow.", "It is cold outside"),
]
TINY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"]


def tiny_model(seed: int = 0) -> TextModel:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        encoder = Encoder(EncoderConfig(len(TINY), 16, layers=3, heads=4, intermediate_size=32, positions=32))
    return TextModel(encoder.requires_grad_(False).eval(), Tokenizer(TINY))


def tensors(batch: TokenBatch) -> list[torch.Tensor]:
    return [torch.from_numpy(part) for part in (batch.ids, batch.segments, batch.mask)]


def pairs(texts: Sequence[tuple[str, str]]) -> Dataset:
    features = np.empty((len(texts), 2), dtype=object)
    features[:] = texts
    ids = np.array([f"t{row}" for row in range(len(texts))], dtype=np.str_)
    return Dataset("texts", features, np.zeros(len(texts), dtype=np.int64), ids, classes=3)


@pytest.fixture
def minilm(real_data: Path) -> TextModel:
    return load_text_model()


def similarities(model: TextModel, sentence: str, others: Sequence[str]) -> list[float]:
    ids, segments, mask = tensors(model.tokenizer.batch([(text,) for text in (sentence, *others)]))
    weights = mask[..., None].float()
    means = (model.encoder(ids, segments, mask) * weights).sum(1) / weights.sum(1)
    result: list[float] = torch.cosine_similarity(means[:1], means[1:]).tolist()
    return result


def test_encoder_gives_the_published_similarities(minilm: TextModel) -> None:
    """Example of the Hugging Face inference documentation for all-MiniLM-L6-v2: 0.6946, 0.9429, 0.2569."""
    others = ["That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    found = similarities(minilm, "That is a happy person", others)
    assert found == pytest.approx([0.69458, 0.94292, 0.25688], abs=1e-3)


def test_paraphrases_are_closer_than_unrelated_sentences(minilm: TextModel) -> None:
    near, far = similarities(
        minilm, "A man plays the guitar.", ["Somebody makes guitar music.", "The bank raised interest rates."]
    )
    assert near > far + 0.3


def test_parameter_counts(minilm: TextModel) -> None:
    assert sum(parameter.numel() for parameter in minilm.encoder.parameters()) == 22_713_216
    assert not any(parameter.requires_grad for parameter in minilm.encoder.parameters())
    top = minilm.top(3)
    assert sum(parameter.numel() for parameter in top.parameters()) == 1_923_459
    assert all(parameter.requires_grad for parameter in top.parameters())


def test_bert_base_has_the_papers_number_of_trainable_parameters() -> None:
    with torch.device("meta"):
        encoder = Encoder(EncoderConfig(30_522, 768, layers=1, heads=12, intermediate_size=3072))
        top = TextHead(encoder.layers[0], encoder.pooler, 3)  # type: ignore[arg-type]
    assert sum(parameter.numel() for parameter in top.parameters()) == 7_680_771


def test_the_top_on_cached_states_equals_the_whole_classifier(minilm: TextModel) -> None:
    top = minilm.top(3, seed=5)
    with torch.no_grad():
        top.head.weight *= 30  # so that texts differ by far more than the rounding of cached states
    whole = TextClassifier(minilm.encoder, top)
    cached = encode_dataset(pairs(PAIRS), minilm).features
    assert cached.dtype == np.float16
    expected = whole(*tensors(minilm.tokenizer.batch(PAIRS)))
    assert torch.allclose(top(torch.from_numpy(cached)), expected, atol=5e-3)
    assert expected.std(dim=0).min() > 0.1


def test_only_the_top_is_trained() -> None:
    model = tiny_model()
    top = model.top(3)
    whole = TextClassifier(model.encoder, top)
    whole(*tensors(model.tokenizer.batch([("a b", "c"), ("d", "e")]))).sum().backward()
    assert all(parameter.grad is None for parameter in whole.encoder.parameters())
    assert all(parameter.grad is not None for parameter in top.parameters())


def test_per_record_gradients_of_the_top_add_up() -> None:
    """`vmap` works without a warning, and no record's gradient depends on another record."""
    model = tiny_model()
    top = model.top(3)
    texts = pairs([("a b c", "d"), ("e", "f"), ("g", "h a")])
    states, labels = torch.from_numpy(encode_dataset(texts, model).features).float(), torch.tensor([0, 2, 1])

    def loss(parameters: dict[str, torch.Tensor], state: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return cross_entropy(functional_call(top, parameters, (state[None],)), label[None])[0]

    single = vmap(grad(loss), (None, 0, 0))(dict(top.named_parameters()), states, labels)
    together = torch.autograd.grad(cross_entropy(top(states), labels).sum(), list(top.parameters()))
    for (name, gradients), total in zip(single.items(), together, strict=True):
        assert torch.allclose(gradients.sum(0), total, atol=1e-5), name


def test_the_first_token_alone_is_what_the_full_layer_gives() -> None:
    model = tiny_model()
    ids, segments, mask = tensors(model.tokenizer.batch([("a b c", "d"), ("e", "f")]))
    hidden = model.encoder(ids, segments, mask, layers=2)
    first = model.encoder.layers[2](hidden, mask, first_only=True)
    assert torch.allclose(first, model.encoder(ids, segments, mask)[:, :1], atol=1e-6)


def test_padding_changes_nothing() -> None:
    model = tiny_model()
    top = model.top(3)
    alone = tensors(model.tokenizer.batch([("a", "b")]))
    among = tensors(model.tokenizer.batch([("a", "b"), ("a b c d e", "f g h")]))
    whole = TextClassifier(model.encoder, top)
    assert torch.allclose(whole(*alone), whole(*among)[:1], atol=1e-6)
    states = torch.from_numpy(encode_dataset(pairs([("a", "b"), ("a b c d e", "f g h")]), model).features)
    assert torch.allclose(top(states[:1, :5]), top(states)[:1], atol=1e-6)
    assert top(states[:0]).shape == (0, 3)


def test_the_cache_is_used_and_follows_texts_model_and_length(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = tiny_model(), pairs([("a b c", "d"), ("e", "f")])
    first = encode_dataset(texts, model).features
    encode_dataset(pairs([("a b c", "d"), ("e", "g")]), model)
    encode_dataset(texts, tiny_model(seed=1))
    encode_dataset(texts, model, max_length=5)
    assert len(list((own_cache / "hidden-states").iterdir())) == 4, "four files and no leftovers"

    monkeypatch.setattr(Encoder, "forward", None)
    assert np.array_equal(encode_dataset(texts, model).features, first)


def test_a_damaged_cache_file_is_made_again(own_cache: Path) -> None:
    model, texts = tiny_model(), pairs([("a b c", "d"), ("e", "f")])
    first = np.array(encode_dataset(texts, model).features)
    (file,) = (own_cache / "hidden-states").iterdir()
    for content in (b"", file.read_bytes()[:-7]):
        file.write_bytes(content)
        assert np.array_equal(encode_dataset(texts, model).features, first)


def test_data_without_texts_is_refused() -> None:
    numbers = pairs([("a", "b")]).with_features(np.zeros((1, 2)))
    with pytest.raises(InputError, match="has no texts"):
        encode_dataset(numbers, tiny_model())


def test_weights_that_do_not_fit_are_refused() -> None:
    config = EncoderConfig(len(TINY), 16, layers=3, heads=4, intermediate_size=32)
    with pytest.raises(InputError, match="weights do not fit"):
        encoder_from_tensors(config, {"pooler.dense.weight": torch.zeros(16, 16)})


def test_wrong_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hidden_size=10 must be a multiple of heads=4"):
        EncoderConfig(5, 10, layers=1, heads=4, intermediate_size=8)
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "roberta"}')
    with pytest.raises(InputError, match="model_type='roberta' is not supported, only 'bert'"):
        EncoderConfig.read(path)
