"""Checkpoints of a run: after an interruption, a simulation continues to exactly the same model.

Random streams are keyed by seed, silo, round and step. The state of a run is therefore the server's model, the state of
its backbone, the log, and how often each record was drawn. A file is replaced as a whole or not at all.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.federation.run_result import RoundLog
from rpdp.federation.score import Score
from rpdp.private_files import private_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

FORMAT = "rpdp-checkpoint/2"
_FORMATS = ("rpdp-checkpoint/1", FORMAT)
"""Formats that are read. The first one knows accuracy only."""
NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a round. It holds how often records were drawn: sensitive."""

    run: str
    values: Tensor
    recent: tuple[Tensor, ...]
    backbone: dict[str, Tensor]
    draws: dict[str, NDArray[np.int64]]
    rounds: tuple[RoundLog, ...]

    __repr__ = counts_repr

    def write(self, directory: str | Path) -> None:
        """Replace the checkpoint in a directory."""
        directory = Path(directory)
        tensors = {"values": self.values.contiguous()}
        tensors |= {f"recent/{place:06d}": tensor.clone() for place, tensor in enumerate(self.recent)}
        tensors |= {f"backbone/{name}": tensor.contiguous() for name, tensor in self.backbone.items()}
        tensors |= {f"draws/{silo}": torch.from_numpy(draws.copy()) for silo, draws in self.draws.items()}
        meta = {"format": FORMAT, "run": self.run, "rounds": json.dumps([asdict(log) for log in self.rounds])}
        # Private to its owner: whoever knows the draws undoes the amplification by sampling.
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with private_file(directory / NAME, overwrite=True) as file:
            file.write(save(tensors, metadata=meta))

    @classmethod
    def read(cls, directory: str | Path) -> Checkpoint | None:
        """Read the checkpoint in a directory; None if there is none."""
        path = Path(directory) / NAME
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                meta = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 not a dictionary
            if meta.get("format") not in _FORMATS:
                raise ValueError(f"its format is {meta.get('format')!r}, not one of {', '.join(_FORMATS)}")
            return cls(
                run=meta["run"],
                values=tensors["values"],
                recent=tuple(tensor for _, tensor in sorted(_under("recent/", tensors).items())),
                backbone=_under("backbone/", tensors),
                draws={silo: draws.numpy() for silo, draws in _under("draws/", tensors).items()},
                rounds=tuple(_round(log) for log in json.loads(meta["rounds"])),
            )
        except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
            raise InputError(f"{path}: damaged checkpoint ({error}); remove it to start again") from None

    @classmethod
    def of_run(cls, directory: str | Path | None, run: str, changed: str) -> Checkpoint | None:
        """Read the checkpoint in a directory; None if there is none, refused if it belongs to another run.

        `changed` says what may have changed and what to do, for the message.
        """
        kept = None if directory is None else cls.read(directory)
        if kept is not None and kept.run != run:
            raise InputError(
                f"{directory}: the checkpoint belongs to another run ({kept.run}); this one is {run}: {changed}"
            )
        return kept


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _round(values: dict[str, Any]) -> RoundLog:
    score = None if values["score"] is None else Score.of_json(values["score"])
    return RoundLog(**{**values, "joined": tuple(values["joined"]), "score": score})
