"""Checks that nothing a record holds decides whether model and loss raise, or how long they take (privacy.md, rule 16).

A server chooses the weights, so it can make a chosen record produce NaN or infinity. If model or loss raise on those,
or take another path, the time of the round tells that the record is there. Two things are checked, on synthetic records
of the data's shapes and types:

| check | how | refused, for example |
|---|---|---|
| values decide on branches or sizes | run without values, and watched with some | `if x.sum() > 0`, `x[x > 0]` |
| errors on NaN or infinity | run with them everywhere | `F.binary_cross_entropy`, `torch.linalg.cholesky`, asserts |

"Everywhere" means the inputs, the targets, the weights, the output of the model and that of every layer.

What these checks cannot see: the speed of torch's own operators (denormal numbers are slow on some processors), code
outside of torch that looks at a tensor's memory, and errors on whole numbers out of range (an embedding, a class).
`rpdp.training.round_time` measures what those can cost, and `rpdp silo check` demands a `release_after` above it.
"""

from __future__ import annotations

import copy
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from rpdp.errors import PrivacyRefusal, RpdpError
from rpdp.training.code_places import user_line
from rpdp.training.operator_mode import OperatorMode
from rpdp.training.records import Records
from rpdp.training.synthetic_records import synthetic_variants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rpdp.training.kernel import PerRecordLoss

BAD_NUMBERS = (float("nan"), float("inf"), float("-inf"))
EXTREME_NUMBERS = (*BAD_NUMBERS, 1e30, -1e30, 1e-42, 0.0)
"""Not a number, infinite, so large that products overflow, and so small that they have lost their digits."""

_VALUES_ASKED = (".numpy()", "DataDependentOutputException", "DynamicOutputShapeException")
"""Words in errors of tensors without values, also where other code, such as TorchScript, passes them on as its own."""

_NEED_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

_ROWS = len(EXTREME_NUMBERS)


def require_value_independent(module: nn.Module, loss: PerRecordLoss, example: Records) -> list[str]:
    """Refuse model and loss if a record's values can make them raise, branch, or need more memory.

    Of `example`, only shapes and types are used. The model is not changed.

    Returns:
        What could not be checked, in words that begin with "not covered"; usually nothing.
    """
    records = _usable(module, loss, example)
    if records is None:
        return []  # `make_kernel` refuses model and loss, and says why
    notes = _traced(module, loss, records)
    _watched(module, loss, records)
    for where, attempt in _attempts(module, loss, records):
        _require_silent(where, attempt)
    return notes


def _usable(module: nn.Module, loss: PerRecordLoss, example: Records) -> Records | None:
    """Synthetic records that model and loss run on; None if there are none."""
    for records in synthetic_variants(example, _ROWS):
        with suppress(Exception):  # user code may raise anything
            _run(copy.deepcopy(module), loss, records)
            return records
    return None


def _run(module: nn.Module, loss: PerRecordLoss, records: Records) -> None:
    """The losses of these records and the gradient of their sum; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        losses = loss(module(*records.inputs), records.targets)
        weights = [value for value in module.parameters() if value.requires_grad]
        torch.autograd.grad(losses.sum(), weights, allow_unused=True)


# Branches, loops and sizes


def _traced(module: nn.Module, loss: PerRecordLoss, records: Records) -> list[str]:
    """Run on tensors that have shapes and no values: whatever asks for a value fails."""
    # Imported here: it takes seconds, and simulations do not need it.
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )

    model = copy.deepcopy(module)
    mode = FakeTensorMode(allow_non_fake_inputs=True)  # constants of model and loss may be real
    weights = {name: mode.from_tensor(value.detach()) for name, value in model.named_parameters()}
    for name, value in model.named_parameters():
        weights[name].requires_grad_(value.requires_grad)
    buffers = {name: mode.from_tensor(value) for name, value in model.named_buffers()}
    inputs = tuple(mode.from_tensor(tensor) for tensor in records.inputs)
    targets = mode.from_tensor(records.targets)
    trained = [value for value in weights.values() if value.requires_grad]
    try:
        with mode, torch.enable_grad(), warnings.catch_warnings(), _values_asked() as asked:
            warnings.simplefilter("ignore")
            losses = loss(torch.func.functional_call(model, {**weights, **buffers}, inputs), targets)
            torch.autograd.grad(losses.sum(), trained, allow_unused=True)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise _depends(asked[0] if asked else f"they use {error.func}") from None
    except Exception as error:  # user code may raise anything, and so may torch for operators that it cannot trace
        if any(words in str(error) for words in _VALUES_ASKED):
            raise _depends("they ask for the values of a tensor outside of torch's operators") from None
        first = (str(error) or "no message").splitlines()[0]
        return [
            "not covered: whether the time and memory of model and loss depend on the values of a record could not be "
            f"checked ({type(error).__name__}: {first[:200]})"
        ]
    if asked:
        raise _depends(asked[0])
    return []


class _ValueWatch(OperatorMode):
    """Notes operators that hand values of records to Python.

    A run without values is not enough: code may ask whether its tensors have values, and look at them only then (the
    attention masks of `transformers` do). A tensor depends on records if an operator that made it, or wrote to its
    memory, had an input that does.
    """

    def __init__(self, records: Records) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.asked: list[str] = []
        self._kept: list[Tensor] = []  # so that no address is used twice
        self._places: set[int] = set()
        self._note((*records.inputs, records.targets))

    def _note(self, values: object) -> None:
        for leaf in pytree.tree_leaves(values):
            if isinstance(leaf, Tensor) and leaf.numel():
                self._kept.append(leaf)
                self._places.add(leaf.untyped_storage().data_ptr())

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and note its outputs if it had inputs of records."""
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.numel()]
        depends = any(leaf.untyped_storage().data_ptr() in self._places for leaf in given)
        by_place = func is torch.ops.aten.index.Tensor and not any(leaf.dtype == torch.bool for leaf in given[1:])
        if depends and not by_place and not _NEED_VALUES.isdisjoint(func.tags):
            self.asked.append(f"{func}{user_line()}")
        output = func(*args, **(kwargs or {}))
        if depends:
            self._note(output)
        return output


def _watched(module: nn.Module, loss: PerRecordLoss, records: Records) -> None:
    """Run on tensors with values, and refuse operators that hand them to Python."""
    with _ValueWatch(records) as watch:
        _run(copy.deepcopy(module), loss, records)
    if watch.asked:
        raise _depends(f"they use {watch.asked[0]}")


@contextmanager
def _values_asked() -> Iterator[list[str]]:
    """Collect requests for values that raise no error to the end: as text, or where the code catches the error."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    asked: list[str] = []

    def recorded(error: Exception, func: object) -> None:
        asked.append(f"they use {func}{user_line()}")
        error.func = func  # type: ignore[attr-defined]

    def as_text(*_: object, **__: object) -> str:
        asked.append(f"they turn a tensor into text{user_line()}")
        return "tensor"

    with (
        mock.patch.object(DataDependentOutputException, "__init__", recorded),
        mock.patch.object(DynamicOutputShapeException, "__init__", recorded),
        mock.patch.object(Tensor, "__repr__", as_text),
    ):
        yield asked


def _depends(evidence: str) -> PrivacyRefusal:
    return PrivacyRefusal(
        f"the time or memory that model and loss need can depend on the values of a record: {evidence}. A server could "
        "read from the time of a round whether a record is there. Use torch.where for branches on values, masks "
        "that multiply for boolean indexing, and do not turn tensors into Python numbers"
    )


# Errors


def _attempts(module: nn.Module, loss: PerRecordLoss, records: Records) -> Iterator[tuple[str, Callable[[], None]]]:
    """All the places where numbers that are not finite are put, each with a run that has them there."""

    def with_records(changed: Records) -> Callable[[], None]:
        return lambda: _run(copy.deepcopy(module), loss, changed)

    inputs = tuple(_extreme(tensor) for tensor in records.inputs)
    yield "the inputs", with_records(Records(inputs, records.targets))
    yield "the targets", with_records(Records(records.inputs, _extreme(records.targets)))
    for numbers in (BAD_NUMBERS, (1e30, -1e30), (1e-42, 0.0)):
        yield "the weights", lambda numbers=numbers: _run(_reweighted(module, numbers), loss, records)  # type: ignore[misc]
    yield "the output of the model", lambda: _run(copy.deepcopy(module), _after_extremes(loss), records)
    for name, layer in module.named_modules():
        if name and not any(True for _ in layer.children()):
            yield f"the output of layer {name}", lambda name=name: _run_with_layer(module, name, loss, records)  # type: ignore[misc]


def _require_silent(where: str, attempt: Callable[[], None]) -> None:
    try:
        attempt()
    except RpdpError:
        raise
    except Exception as error:  # user code may raise anything
        first = (str(error) or "no message").splitlines()[0]
        raise PrivacyRefusal(
            f"model or loss raise on numbers that are not finite, or extreme, in {where}: {type(error).__name__}: "
            f"{first[:200]}. A server can choose weights with which a chosen record has such numbers, and would see "
            "that it is there. Return NaN instead: F.binary_cross_entropy_with_logits in place of "
            "F.binary_cross_entropy, torch.linalg's functions that end in _ex, distributions with "
            "validate_args=False, no asserts on values"
        ) from None


def _extreme(tensor: Tensor) -> Tensor:
    """Each row full of another extreme number; whole numbers stay as they are."""
    if not tensor.is_floating_point():
        return tensor
    column = torch.tensor(EXTREME_NUMBERS, dtype=torch.float64).to(tensor.dtype)
    return column.reshape(-1, *[1] * (tensor.dim() - 1)).expand_as(tensor).clone()


def _alternating(tensor: Tensor, numbers: tuple[float, ...]) -> Tensor:
    """The numbers in turn, in the shape of a tensor."""
    places = torch.arange(tensor.numel()) % len(numbers)
    return torch.tensor(numbers, dtype=torch.float64).to(tensor.dtype)[places].reshape(tensor.shape)


def _reweighted(module: nn.Module, numbers: tuple[float, ...]) -> nn.Module:
    """A copy of the model with these numbers in turn as its trainable weights."""
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for value in copied.parameters():
            if value.requires_grad:
                value.copy_(_alternating(value, numbers))
    return copied


def _replaced(output: Any) -> Any:
    """The output of a layer with every number replaced, still part of the graph."""
    if isinstance(output, Tensor):
        if not output.is_floating_point():
            return output
        return torch.where(torch.ones_like(output, dtype=torch.bool), _alternating(output, BAD_NUMBERS), output)
    if isinstance(output, tuple) and type(output) is tuple:
        return tuple(_replaced(part) for part in output)
    return output


def _after_extremes(loss: PerRecordLoss) -> PerRecordLoss:
    """The same loss, of an output in which each row is full of another extreme number."""

    def of_extremes(output: Any, targets: Tensor) -> Tensor:
        if not isinstance(output, Tensor) or output.dim() == 0 or len(output) != _ROWS:
            return loss(_replaced(output), targets)
        return loss(torch.where(torch.ones_like(output, dtype=torch.bool), _extreme(output), output), targets)

    return of_extremes


def _run_with_layer(module: nn.Module, name: str, loss: PerRecordLoss, records: Records) -> None:
    """Run a copy of the model in which one layer returns numbers that are not finite."""
    copied = copy.deepcopy(module)
    with _hooked(copied.get_submodule(name)):
        _run(copied, loss, records)


@contextmanager
def _hooked(layer: nn.Module) -> Iterator[None]:
    handle = layer.register_forward_hook(lambda _, __, output: _replaced(output))
    try:
        yield
    finally:
        handle.remove()
