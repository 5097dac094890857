"""Which extra of the distribution provides an optional package, and the error that tells users to install it.

`pip install rpdp` plans, accounts and checks budgets. Everything else needs an extra, for example `rpdp[train]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTIONAL = {
    "torch": ("PyTorch", ("train",)),
    "safetensors": ("safetensors", ("train",)),
    "cryptography": ("cryptography", ("train", "ledger")),
    "sklearn": ("scikit-learn", ("train", "demo")),
    "mlxtend": ("mlxtend", ("demo",)),
    "apsw": ("apsw", ("ledger",)),
    "starlette": ("Starlette", ("console",)),
    "uvicorn": ("uvicorn", ("console",)),
    "fhir": ("fhir.resources", ("consent",)),
    "tensorboard": ("TensorBoard", ("tensorboard",)),
    "flwr": ("Flower", ("flower",)),
    "transformers": ("transformers", ("hf",)),
    "peft": ("peft", ("hf",)),
}
"""Import name → the name people know, and the extras that install it."""


def missing_extra(user: str, error: ModuleNotFoundError, needed: Sequence[str] = ()) -> MissingExtraError | None:
    """The error that names the extra for a module that was not found, or None if no extra provides that module.

    Args:
        user: What needs the module: a command or a public name.
        error: What the import raised.
        needed: All extras that the user needs, so that one installation is enough.
    """
    module = (error.name or "").partition(".")[0]
    if module not in _OPTIONAL:
        return None
    title, providers = _OPTIONAL[module]
    extras = list(needed)
    if not set(extras) & set(providers):
        extras.append(providers[0])
    return MissingExtraError(f"{user} needs {title}: pip install 'rpdp[{','.join(extras)}]'", module)
