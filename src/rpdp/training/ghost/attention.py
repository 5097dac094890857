"""Multi-head attention with recorded projections.

`nn.MultiheadAttention` passes its weights to one fused function, so hooks see none of its four projections. While
recording, its `forward` is replaced by this one, which computes the same result from recorded projections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from rpdp.training.ghost.layer_rules import LinearRule, Slot

if TYPE_CHECKING:
    from torch import nn

    from rpdp.training.ghost.recorder import Recorder


class RecordedAttention:
    """The forward pass of one `nn.MultiheadAttention`, with every projection recorded."""

    def __init__(self, module: nn.MultiheadAttention) -> None:
        self._module = module
        size = module.embed_dim
        output = module.out_proj
        self.output = LinearRule(
            weight=Slot(cast("nn.Parameter", output.weight)),
            bias=None if output.bias is None else Slot(output.bias),
        )
        self.packed = module._qkv_same_embed_dim
        if self.packed:
            self.whole = LinearRule(**self._slots(0, None))
        self.parts = [self._part(position, size) for position in range(3)]

    @property
    def slots(self) -> list[Slot]:
        """All trainable parameters of the module."""
        return [slot for rule in (*self.parts, self.output) for slot in rule.slots]

    @staticmethod
    def supports(module: nn.MultiheadAttention) -> bool:
        """Whether this forward pass supports the module's options."""
        return module.bias_k is None and module.bias_v is None and not module.add_zero_attn

    def _slots(self, start: int, stop: int | None) -> dict[str, Slot | None]:
        module = self._module
        bias = None if module.in_proj_bias is None else Slot(module.in_proj_bias, start, stop)
        return {"weight": Slot(module.in_proj_weight, start, stop), "bias": bias}

    def _part(self, position: int, size: int) -> LinearRule:
        module = self._module
        slots = (
            self._slots(position * size, (position + 1) * size)
            if self.packed
            else {
                "weight": Slot((module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)[position]),
                "bias": None
                if module.in_proj_bias is None
                else Slot(module.in_proj_bias, position * size, (position + 1) * size),
            }
        )
        return LinearRule(**slots)

    def __call__(
        self,
        recorder: Recorder,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Like `nn.MultiheadAttention.forward`. `is_causal` is only a hint: the mask itself is always used."""
        module = self._module
        same = query is key and key is value
        if not module.batch_first:
            query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
        heads = [
            tensor.view(*tensor.shape[:2], module.num_heads, -1).transpose(1, 2)
            for tensor in self._project(recorder, query, key, value, same)
        ]
        mask = self._mask(key_padding_mask, attn_mask, query)
        dropout = module.dropout if module.training else 0.0
        weights = None
        if need_weights:
            scores = heads[0] @ heads[1].transpose(2, 3) / heads[0].shape[-1] ** 0.5
            weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
            weights = F.dropout(weights, dropout, training=dropout > 0)
            mixed = weights @ heads[2]
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], attn_mask=mask, dropout_p=dropout)
        output = self._linear(recorder, self.output, mixed.transpose(1, 2).flatten(2), module.out_proj)
        return (output if module.batch_first else output.transpose(0, 1)), weights

    def _project(self, recorder: Recorder, query: Tensor, key: Tensor, value: Tensor, same: bool) -> tuple[Tensor, ...]:
        module = self._module
        if self.packed and same:
            projected = F.linear(query, module.in_proj_weight, module.in_proj_bias)
            recorder.record(self.whole, query, projected)
            return projected.chunk(3, dim=-1)
        size = module.embed_dim
        projections = []
        for position, tensor in enumerate((query, key, value)):
            rows = slice(position * size, (position + 1) * size)
            weight = (
                module.in_proj_weight[rows]
                if self.packed
                else (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)[position]
            )
            bias = None if module.in_proj_bias is None else module.in_proj_bias[rows]
            projections.append(F.linear(tensor, weight, bias))
            recorder.record(self.parts[position], tensor, projections[-1])
        return tuple(projections)

    def _linear(self, recorder: Recorder, rule: LinearRule, inputs: Tensor, layer: nn.Linear) -> Tensor:
        output = F.linear(inputs, layer.weight, layer.bias)
        recorder.record(rule, inputs, output)
        return output

    def _mask(self, padding: Tensor | None, mask: Tensor | None, query: Tensor) -> Tensor | None:
        """Both masks as one tensor that is added to the scores (records, heads, queries, keys)."""
        merged = None
        if mask is not None:
            merged = _additive(mask, query)
            if merged.dim() == 3:
                merged = merged.view(-1, self._module.num_heads, *merged.shape[1:])
        if padding is not None:
            added = _additive(padding, query)[:, None, None, :]
            merged = added if merged is None else merged + added
        return merged


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask as numbers: −∞ where a Boolean mask forbids."""
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
    return mask.to(like.dtype)
