"""Models of the library `transformers` as rpdp trains them: tensors in, one tensor out. The library is not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


class TransformersModel(nn.Module):
    """A model of `transformers`, with or without adapters of `peft`, that is called with the inputs of records.

    The model stays as it is: dropout may be on, no argument such as `position_ids` is needed, and only parameters with
    `requires_grad` are trained. Two things are translated. Inputs become named arguments, and the output is one field
    of what the model returns. And an attention mask of shape (records, tokens) is given in its full shape. The library
    would look whether any token is masked at all, and take a faster way if not: whether one record is shorter than
    all others would then show in the time of a round (privacy.md, rule 16).

    Args:
        model: The model.
        arguments: The names of the inputs, in the order of `Records.inputs`.
        output: The field of the model's output.
        causal: Whether a token sees only those before it (GPT and its kind). By default, what the model's
            configuration says; give it for a model that does not say.
    """

    def __init__(
        self,
        model: nn.Module,
        arguments: Sequence[str] = ("input_ids", "attention_mask"),
        output: str = "logits",
        *,
        causal: bool | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.arguments = tuple(arguments)
        self.output = output
        self.causal = _is_causal(model) if causal is None else causal

    def forward(self, *inputs: Tensor) -> Tensor:
        """The chosen output."""
        if len(inputs) != len(self.arguments):
            raise InputError(f"{len(inputs)} inputs for the arguments {', '.join(self.arguments)}: give one for each")
        named = dict(zip(self.arguments, inputs, strict=True))
        mask = named.get("attention_mask")
        if mask is not None and mask.dim() == 2:
            named["attention_mask"] = self._in_full(mask)
        found: Tensor = getattr(self.model(**named), self.output)
        return found

    def _in_full(self, mask: Tensor) -> Tensor:
        """What is added to the scores: (records, 1, tokens, tokens), 0 or the smallest number."""
        tokens, kind = mask.shape[1], next(self.model.parameters()).dtype
        hidden = (mask == 0)[:, None, None, :].expand(-1, 1, tokens, tokens)
        if self.causal:
            hidden = hidden | torch.ones(tokens, tokens, dtype=torch.bool, device=mask.device).triu(1)
        return torch.zeros_like(hidden, dtype=kind).masked_fill(hidden, torch.finfo(kind).min)


_CAUSAL = ("gpt", "llama", "mistral", "qwen", "opt", "bloom", "phi", "gemma", "falcon")


def _is_causal(model: nn.Module) -> bool:
    """Whether the configuration says that this is a decoder."""
    settings = getattr(model, "config", None)
    kind = str(getattr(settings, "model_type", ""))
    return bool(getattr(settings, "is_decoder", False)) or kind.startswith(_CAUSAL)
