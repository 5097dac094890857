"""Running a simulation of one method with its settings on one seed, and turning failures into plain errors."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError, RpdpError
from rpdp.federation import simulate
from rpdp.studies.user_code import digest_of_code, digest_of_product
from rpdp.training import SlowKernelWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

    from rpdp.federation import RoundLog, RunResult
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.study_file import MethodSettings, StudyFile


@dataclass(frozen=True)
class MethodRun:
    """A method with its settings on one seed."""

    settings: MethodSettings
    seed: int

    def key(self, spec: StudyFile) -> str:
        """Return a name under which the result of exactly this computation can be kept."""
        text = json.dumps([_essence(spec), asdict(self.settings), self.seed], sort_keys=True, default=_plain)
        return f"{self.settings.method}-{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def execute(
    built: PreparedRun,
    *,
    workers: int | None,
    on_round: Callable[[RoundLog], None] | None = None,
    on_model: Callable[[int, Tensor], None] | None = None,
    on_remark: Callable[[str], None] | None = None,
    checkpoint: Path | None = None,
) -> RunResult:
    """Run a federation that was built. `on_remark` is called once if a slow kernel must be used."""
    assert built.seed is not None
    with _simulation_errors(), slow_kernel_remarks(on_remark):
        result = simulate(
            built.model,
            built.source.loss,
            built.silos,
            built.public,
            seed=_seed_of_noise(built.seed, built.trial),
            evaluation=built.evaluation,
            method=built.settings.method,
            workers=workers,
            on_round=on_round,
            on_model=on_model,
            checkpoint=checkpoint,
        )
    return replace(result, seed=built.seed)


def _seed_of_noise(seed: int, trial: str) -> int:
    """Return a seed for coins, draws and noise: each trial has its own, as in a real run, and all have one data set."""
    if not trial:
        return seed
    return int.from_bytes(hashlib.sha256(f"trial/{seed}/{trial}".encode()).digest()[:6], "little")


@contextmanager
def _simulation_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # raised by torch in the user's model or on the user's data
        raise InputError(f"training stopped: {str(error).splitlines()[0]}; no model was released") from error


@contextmanager
def real_run_errors() -> Iterator[None]:
    """Report errors of a real run without torch's own message, which may quote data."""
    try:
        yield
    except RuntimeError as error:
        raise RpdpError(
            f"training stopped ({type(error).__name__}). Rounds that were charged stay charged, and updates that were "
            "released stay released; fix the cause and continue with --resume"
        ) from error


@contextmanager
def slow_kernel_remarks(on_remark: Callable[[str], None] | None) -> Iterator[None]:
    """Turn warnings about slow kernels into remarks, each made once, whatever the number of silos."""
    made = set[str]()
    show = warnings.showwarning

    def once(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, SlowKernelWarning):
            show(message, category, *place, **more)
        elif on_remark is not None and str(message) not in made:
            made.add(str(message))
            on_remark(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", SlowKernelWarning)
        warnings.showwarning = once
        yield


def _essence(spec: StudyFile) -> dict[str, Any]:
    """Return everything in a study file on which a result depends, with hashes of the code and budgets it names."""
    parts = {
        name: vars(getattr(spec, name))
        for name in ("task", "schedule", "privacy", "budgets", "training", "evaluation", "policy")
    }
    code = [digest_of_code(reference, spec.directory) for reference in spec.own_code]
    files = {
        silo: hashlib.sha256((spec.directory / file).read_bytes()).hexdigest()
        for silo, file in (spec.budgets.files or {}).items()
    }
    table = {} if spec.table is None else {"table": spec.table.essence(spec.directory)}
    return {**parts, **table, "split": spec.run.split, "code": code, "files": files, "rpdp": digest_of_product()}


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} in a study file")
