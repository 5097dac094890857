"""Runs with a request on one machine: every silo releases noisy sums of what its records contribute.

The same `Silo`, accounts and outbox as in training. What the numbers mean is for the layer above.
"""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.federation.heads import keep_heads, require_heads
from rpdp.federation.in_process import require_distinct
from rpdp.federation.production import all_or_none, ledgers_of
from rpdp.federation.server import SumServer
from rpdp.federation.workers import one_thread
from rpdp.planning import PublicPlan
from rpdp.sampling import Secure, Seeded
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.federation.silo import Silo

FORMAT = "rpdp-sums/1"


@dataclass(frozen=True)
class ReleasedSums:
    """What silos released for a request. The promise covers it: anything may be computed from it.

    Attributes:
        run: The id of the run.
        public: The public plan, with the request.
        by_silo: Rounds × cells for every silo, with its own noise; NaN in rounds in which it released nothing.
        seed: The seed of a simulation, which protects nobody; None in production.
    """

    run: str
    public: PublicPlan
    by_silo: Mapping[str, NDArray[np.float64]]
    seed: int | None

    __repr__ = counts_repr

    @property
    def silos(self) -> tuple[str, ...]:
        """The names of the silos, sorted."""
        return tuple(sorted(self.by_silo))

    @property
    def answered(self) -> NDArray[np.int64]:
        """For each round, how many silos released sums."""
        answers: NDArray[np.int64] = np.sum([~np.isnan(self.by_silo[name][:, 0]) for name in self.silos], axis=0)
        return answers

    @property
    def sums(self) -> NDArray[np.float64]:
        """Rounds × cells, added over the silos that released them; NaN in rounds in which none did."""
        sums: NDArray[np.float64] = np.sum([np.nan_to_num(self.by_silo[name], nan=0.0) for name in self.silos], axis=0)
        sums[self.answered == 0] = np.nan
        return sums

    @property
    def noise_std(self) -> NDArray[np.float64]:
        """For each round, the standard deviation of the noise on a cell of `sums`: s·L·√(number of silos)."""
        std: NDArray[np.float64] = self.public.noise_multiplier * self.public.clip_norm * np.sqrt(self.answered)
        return std

    def write(self, path: str | Path) -> None:
        """Write a JSON file, as a whole or not at all. It is public."""
        values = {
            "format": FORMAT,
            "run": self.run,
            "plan": json.loads(self.public.to_json()),
            "seed": self.seed,
            "silos": {
                name: [None if np.isnan(row[0]) else row.tolist() for row in self.by_silo[name]] for name in self.silos
            },
        }
        fresh = Path(path).with_name(f".{Path(path).name}.new")
        fresh.write_text(json.dumps(values, allow_nan=False) + "\n", encoding="utf-8")
        fresh.replace(path)

    @classmethod
    def read(cls, path: str | Path) -> ReleasedSums:
        """Read what `write` wrote."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise ValueError(f"its format is {values['format']!r}, not {FORMAT!r}")
            public = PublicPlan.from_json(json.dumps(values["plan"]))
            nothing = [math.nan] * (0 if public.request is None else public.request.size)
            shape = (public.schedule.rounds, len(nothing))
            by_silo = {name: np.array([row or nothing for row in rows]) for name, rows in values["silos"].items()}
            if any(sums.shape != shape or sums.dtype != np.float64 for sums in by_silo.values()):
                raise ValueError(f"its sums are not {shape[0]} rounds of {shape[1]} numbers")
            return cls(values["run"], public, by_silo, values["seed"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: these are no released sums ({error})") from None


def release_sums(
    public: PublicPlan,
    silos: Sequence[Silo],
    *,
    model: nn.Module | None = None,
    values: Tensor | Sequence[Tensor] | None = None,
    seed: int | None = None,
    run: str = "",
    heads: str | Path | None = None,
) -> ReleasedSums:
    """Ask all silos for the sums of a request, in this process.

    With a seed it is **a simulation**: it repeats, and nothing is protected. Without one it is real: every silo needs a
    production ledger, and after an interruption the same call continues the run. Rounds that were finished give the
    same numbers again; a round that was interrupted stays charged, and its silo releases nothing for it.

    Args:
        public: The plan, from `PublicPlan.of_request`.
        silos: Silos with code for the request (`Silo(measured=...)`).
        model: The model that an evaluation measures; it is not changed. Statistics need none.
        values: Flat values to announce in place of the model's own: for all rounds, or one for each.
        seed: Fixes the noise of a simulation.
        run: The id of a real run; a new run needs a new one. Simulations have one by default.
        heads: The file in which a real run keeps the latest public head of every ledger.
    """
    require_distinct(silos)
    if public.request is None:
        raise InputError("public has no request: make the plan with PublicPlan.of_request, or train with simulate")
    run = run or ("" if seed is None else f"{public.fingerprint[:16]}-sums-{seed}")
    if seed is None and (not run or heads is None):
        raise InputError("a real run needs run, by which the ledgers know it, and heads, a file; a simulation, a seed")
    server = SumServer(run, public, torch.zeros(0), [silo.name for silo in silos])
    announced = _announced(public, model, values)
    with one_thread():
        keep = _admit(run, public, silos, model, seed, heads)
        for server.values in announced:
            told = server.announce()
            answers = [silo.answer(told[silo.name]) for silo in silos]
            server.collect([answer for answer in answers if answer is not None])
            keep()
    return ReleasedSums(run, public, server.released, seed)


def _admit(
    run: str,
    public: PublicPlan,
    silos: Sequence[Silo],
    model: nn.Module | None,
    seed: int | None,
    heads: str | Path | None,
) -> Callable[[], None]:
    """Let every silo admit the run, or none; return what to call after every round."""
    if seed is not None or heads is None:
        for silo in silos:
            silo.begin_simulation()
            silo.admit(run, public, model, None, Seeded(seed or 0).child("silo", silo.name))
        return lambda: None
    ledgers = ledgers_of(silos)
    require_heads(heads, ledgers)
    keep = partial(keep_heads, heads, ledgers)
    with all_or_none(run, silos, keep):
        for silo in silos:
            silo.admit(run, public, model, None, Secure())
    keep()
    return keep


def _announced(
    public: PublicPlan, model: nn.Module | None, values: Tensor | Sequence[Tensor] | None
) -> Sequence[Tensor]:
    """What each round announces."""
    rounds = public.schedule.rounds
    if public.purpose == "statistics":
        if model is not None or values is not None:
            raise InputError("statistics announce nothing: leave model and values out")
        return [torch.zeros(0)] * rounds
    if model is None:
        raise InputError("model is missing: an evaluation needs the model that it measures")
    if values is None:
        values = FlatModel(copy.deepcopy(model)).values.data.cpu()
    announced = [values] * rounds if isinstance(values, torch.Tensor) else list(values)
    if len(announced) != rounds:
        raise InputError(f"values has {len(announced)} models for {rounds} rounds; give one, or one for each round")
    return announced
