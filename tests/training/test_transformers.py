"""Models of `transformers` and adapters of `peft`, as they are: closed forms, dropout, and no look at values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.training import (
    FlatModel,
    GhostKernel,
    LoopKernel,
    Records,
    TransformersModel,
    make_kernel,
    require_value_independent,
)

if TYPE_CHECKING:
    from collections.abc import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers: Any = pytest.importorskip("transformers")
peft: Any = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def loss(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


def bert() -> Any:
    settings = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=12, num_labels=3,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(settings)


def distilbert() -> Any:
    settings = transformers.DistilBertConfig(
        vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=12, num_labels=3
    )
    return transformers.DistilBertForSequenceClassification(settings)


def gpt2() -> Any:
    settings = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=12, num_labels=3, pad_token_id=0, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    return transformers.GPT2ForSequenceClassification(settings)


def with_adapters() -> Any:
    chosen = peft.LoraConfig(r=4, target_modules=["query", "value"], modules_to_save=["classifier"], lora_dropout=0.1)
    adapted = peft.get_peft_model(bert(), chosen)
    with torch.no_grad():
        for name, value in adapted.named_parameters():
            if "lora_B" in name:
                value.normal_(std=0.1)  # they begin at zero, where the other half has no gradient
    return adapted


MODELS = {"bert": bert, "distilbert": distilbert, "gpt2": gpt2, "adapters": with_adapters}


def built(make: Callable[[], Any]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        module: nn.Module = make()
    return module.train()


def some_records(count: int) -> Records:
    generator = torch.Generator().manual_seed(count)
    words = torch.randint(3, 50, (count, 9), generator=generator)
    lengths = torch.randint(4, 10, (count, 1), generator=generator)
    mask = (torch.arange(9) < lengths).long()
    return Records.of([words * mask, mask], torch.randint(3, (count,), generator=generator))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_as_it_is_and_equals_one_record_at_a_time(name: str) -> None:
    module = TransformersModel(built(MODELS[name]))
    model, records = FlatModel(module), some_records(6).masked(bytes(32), np.arange(6))
    kernel = make_kernel(model, loss, records)
    assert isinstance(kernel, GhostKernel)
    assert kernel.draws_masks
    assert not kernel.odd_layers
    reference = LoopKernel(model, loss)
    clip_norm = float(reference.clipped_sum(records, 1.0).norms.median())
    found, expected = kernel.clipped_sum(records, clip_norm), reference.clipped_sum(records, clip_norm)
    assert float((found.total - expected.total).norm() / expected.total.norm()) < 1e-5
    assert torch.allclose(found.norms, expected.norms, rtol=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_full_mask_is_the_same_mask(name: str, attention: str) -> None:
    plain: Any = built(MODELS[name]).eval()
    records = some_records(5)
    plain.set_attn_implementation(attention)
    with torch.no_grad():  # at random starting weights hardly anything depends on the mask
        for value in plain.parameters():
            value.mul_(10.0 if value.dim() > 1 else 1.0)
    words, mask = records.inputs
    expected = plain(input_ids=words, attention_mask=mask).logits
    assert torch.allclose(TransformersModel(plain)(words, mask), expected, atol=1e-5)
    wrong = TransformersModel(plain, causal=False)(words, mask if name == "gpt2" else torch.ones_like(mask))
    assert not torch.allclose(wrong, expected, atol=1e-5)


class MaskAsItIs(nn.Module):
    """The library looks at the mask, but not where tensors have no values."""

    def __init__(self) -> None:
        super().__init__()
        self.model = built(bert)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=words, attention_mask=mask).logits
        return logits


@pytest.mark.parametrize("name", MODELS)
def test_values_of_records_do_not_decide_the_course(name: str) -> None:
    assert require_value_independent(TransformersModel(built(MODELS[name])), loss, some_records(4)) == []


def test_a_look_at_the_mask_is_noticed() -> None:
    with pytest.raises(PrivacyRefusal, match="they use aten"):
        require_value_independent(MaskAsItIs(), loss, some_records(4))


def test_inputs_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match="1 inputs for the arguments input_ids, attention_mask"):
        TransformersModel(nn.Linear(2, 2))(torch.zeros(1, 2))
