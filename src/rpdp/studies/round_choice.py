"""Which round's model is the result of a run: the best one by private evaluation, or the last.

The models after the evaluated rounds are public: they follow from released updates. They are kept as the run goes, so
that a run that is resumed has them all, and evaluated together when it is over. Ending a run before its last round
would return nothing of what it reserved (privacy.md, rule 10), so the choice is made at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError
from rpdp.studies.private_evaluation import NamedModel, evaluate_privately, evaluated_rounds
from rpdp.studies.run_directory import MODELS, read_model, write_model

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from rpdp.federation import RunResult
    from rpdp.studies.building import PreparedRun


class RoundChoice:
    """Keeps the models of a run that are evaluated, and chooses among them."""

    def __init__(self, built: PreparedRun, directory: Path) -> None:
        self._built = built
        self._home = directory / MODELS
        self._rounds = evaluated_rounds(built.spec) if built.private_evaluation is not None else ()

    def keep(self, number: int, values: Tensor) -> None:
        """Keep the model after a round, if it is evaluated. The last one is the result of the run anyway."""
        if number in self._rounds[:-1]:
            self._home.mkdir(parents=True, exist_ok=True)
            write_model(values, self._built.model, self._path(number))

    def made(self, result: RunResult, heads: Path) -> tuple[RunResult, dict[str, Any]]:
        """Evaluate all kept models; return the run with the best one as its result, and what was found out."""
        outlook = self._built.private_evaluation
        assert outlook is not None
        values = {number: self._read(number) for number in self._rounds[:-1]} | {self._rounds[-1]: result.values}
        models = {f"round {number}": NamedModel(f"round {number}", each) for number, each in values.items()}
        facts = evaluate_privately(self._built, list(models.values()), result.run, heads, outlook)
        if facts["chosen"] is None:
            return result, facts
        number = self._rounds[list(models).index(facts["chosen"])]
        return result.with_model_of(number, values[number]), facts

    def _read(self, number: int) -> Tensor:
        path = self._path(number)
        if not path.is_file():
            raise InputError(f"{path}: the model after round {number} is missing, so rounds cannot be compared")
        return read_model(path)

    def _path(self, number: int) -> Path:
        return self._home / f"round-{number}.safetensors"
