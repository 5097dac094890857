"""The base of contexts that see every operator of torch."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A `TorchDispatchMode` that does not load torch's compiler, a second of every command, when nobody uses it.

    Torch keeps the compiler out of a mode's own code, and loads it to do so. Where it is loaded, as by a model that is
    compiled, this is done here too.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would load the compiler at the first operator

    def __init_subclass__(cls) -> None:
        """Keep the compiler out of `__torch_dispatch__`."""
        super().__init_subclass__()  # type: ignore[no-untyped-call]
        own = cls.__dict__["__torch_dispatch__"]
        shielded: list[Any] = []

        @functools.wraps(own)
        def dispatch(*args: Any, **kwargs: Any) -> Any:
            if "torch._dynamo" not in sys.modules:
                return own(*args, **kwargs)
            if not shielded:
                shielded.append(torch.compiler.disable(own))  # type: ignore[no-untyped-call]
            return shielded[0](*args, **kwargs)

        cls.__torch_dispatch__ = dispatch  # type: ignore[method-assign]
