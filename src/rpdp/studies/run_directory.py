"""The directory of a run: a public part, and below `silo/` what stays with each silo.

    study.toml            the study file of the run
    public-plan.json      the public plan
    rounds.jsonl          one line per round, as the server saw it
    model.safetensors     the final model, parameter by parameter
    result.json           the result in numbers; it exists only if the run is finished
    models/               the models after earlier rounds, if private evaluation chooses among them
    silo/NAME/            silo-plan.parquet, draws.parquet and view.json: sensitive; outlook.json of a real run, too
    silo/budget-groups.json  metrics of the final model on training records, by budget: sensitive
    silo/held-out-groups.json  the same on held-out records, of a run with private evaluation: sensitive

How long a round of a real run takes depends on how many records are drawn (privacy.md, rule 14). Its times are
therefore in the silos' `view.json`, not in the public part. `read_result` returns the `RunResult` that `write_result`
wrote.
"""

from __future__ import annotations

import copy
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from rpdp.errors import InputError
from rpdp.federation import RoundLog, RunResult, Score, SiloView
from rpdp.federation.score import GroupScore
from rpdp.planning import PublicPlan, SiloPlan
from rpdp.private_files import private_file
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from rpdp.ledger.inspection.outlook import Outlook

FORMAT = "rpdp-run/2"
_FORMATS = ("rpdp-run/1", FORMAT)
"""Formats that are read. The first one knows accuracy only."""
PLAN, ROUNDS, MODEL, RESULT = "public-plan.json", "rounds.jsonl", "model.safetensors", "result.json"
MODELS = "models"
SILOS, VIEW, GROUPS, OUTLOOK = "silo", "view.json", "budget-groups.json", "outlook.json"
HELD_OUT_GROUPS = "held-out-groups.json"
STUDY_FILE = "study.toml"
_FORMER_STUDY_FILE = "run.toml"
"""The name of the study file in directories written by release 0.1."""


def write_result(result: RunResult, model: nn.Module, directory: str | Path, *, keep_silos: bool = True) -> None:
    """Write a finished run; `model` gives the parameters their names.

    Without the silos' part, only the summary can be read back.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    result.public.write(directory / PLAN)
    write_rounds(directory, result.rounds, with_time=result.is_simulation)
    write_model(result.values, model, directory / MODEL)
    time = None if result.is_simulation else [result.seconds, *(log.seconds for log in result.rounds)]
    for name, view in result.silos.items() if keep_silos else ():
        _write_view(view, directory / SILOS / name, time)
    if keep_silos and result.groups:
        write_groups(directory, GROUPS, result.groups)
    # The result file comes last, and is replaced as a whole: its presence marks the run as finished.
    fresh = directory / f".{RESULT}.new"
    fresh.write_text(json.dumps(summary(result), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(directory / RESULT)


def summary(result: RunResult) -> dict[str, Any]:
    """Return the result in numbers, all of them public."""
    score = result.score
    time = {"seconds": result.seconds} if result.is_simulation else {}
    return {
        "format": FORMAT,
        "run": result.run,
        "method": result.method,
        "seed": result.seed,
        "is_simulation": result.is_simulation,
        **_accuracies(score),
        "metrics": {} if score is None else _metrics(score),
        "classes": {} if score is None else {name: asdict(count) for name, count in score.classes.items()},
        "majority_share": None if score is None else score.majority_share,
        "only_class": None if score is None else score.only_class,
        "remarks": [] if score is None else list(score.remarks),
        "rounds": len(result.rounds),
        **({} if result.chosen_round is None else {"chosen_round": result.chosen_round}),
        "silos": sorted(result.silos),
        "parameters": result.values.numel(),
        **time,
        "plan": result.public.fingerprint,
        "notes": list(result.public.notes),
    }


def _metrics(score: Score) -> dict[str, Any]:
    """Return every metric with its details; the first one decides."""
    means = score.mean_over_silos
    return {
        name: {
            "value": value,
            "mean_over_silos": means[name],
            "by_silo": {silo: values[name] for silo, values in score.by_silo.items()},
            "by_class": dict(score.by_class.get(name, {})),
        }
        for name, value in score.values.items()
    }


def _accuracies(score: Score | None) -> dict[str, Any]:
    """Return the accuracies as release 0.1 wrote them; empty if accuracy was not measured."""
    if score is None or "accuracy" not in score.values:
        return {"accuracy": None, "mean_over_silos": None, "accuracy_by_silo": {}}
    return {
        "accuracy": score.accuracy,
        "mean_over_silos": score.mean_over_silos["accuracy"],
        "accuracy_by_silo": {silo: values["accuracy"] for silo, values in score.by_silo.items()},
    }


def study_file_in(directory: str | Path) -> Path:
    """Return the path of the study file of a run or comparison; the file need not exist."""
    former = Path(directory) / _FORMER_STUDY_FILE
    return former if former.is_file() else Path(directory) / STUDY_FILE


def is_finished(directory: str | Path) -> bool:
    """Return whether a directory holds a finished run."""
    return (Path(directory) / RESULT).is_file()


def read_summary(directory: str | Path) -> dict[str, Any]:
    """Read the result in numbers of the run in a directory."""
    path = Path(directory) / RESULT
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{directory}: not a finished run: {RESULT} is missing; finish it with --resume") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: damaged: {error}") from None
    if not isinstance(head, dict) or head.get("format") not in _FORMATS:
        raise InputError(f"{path}: not the result of a run of format {' or '.join(_FORMATS)}")
    return head


def read_result(directory: str | Path) -> RunResult:
    """Read the finished run in a directory."""
    directory = Path(directory)
    head = read_summary(directory)
    try:
        public = PublicPlan.read(directory / PLAN)
        rounds = read_rounds(directory)
        seconds, rounds = (head["seconds"], rounds) if head["is_simulation"] else _timed(directory, head, rounds)
        return RunResult(
            run=head["run"],
            public=public,
            method=head["method"],
            seed=head["seed"],
            values=read_model(directory / MODEL),
            rounds=rounds,
            silos={name: _read_view(directory / SILOS / name, public) for name in head["silos"]},
            seconds=seconds,
            groups=read_groups(directory, GROUPS),
            chosen_round=head.get("chosen_round"),
        )
    except FileNotFoundError as error:
        raise InputError(f"{directory}: the run is damaged: missing {error.filename or error}") from None
    except (ValueError, KeyError, TypeError, SafetensorError, pa.ArrowInvalid) as error:
        raise InputError(f"{directory}: the run is damaged: {type(error).__name__}: {error}") from None


def write_outlooks(directory: str | Path, outlooks: Iterable[Outlook]) -> None:
    """Keep what a real run found in the ledgers before it held anything, with each silo."""
    for outlook in outlooks:
        home = Path(directory) / SILOS / outlook.silo
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with private_file(home / OUTLOOK, overwrite=True) as file:
            file.write(json.dumps({**outlook.facts(), "lines": outlook.lines()}, ensure_ascii=False).encode() + b"\n")


def read_outlooks(directory: str | Path) -> list[str]:
    """Read what a real run found in the ledgers, a line each; nothing if it is not known."""
    found = sorted((Path(directory) / SILOS).glob(f"*/{OUTLOOK}"))
    try:
        return [str(line) for path in found for line in json.loads(path.read_text(encoding="utf-8"))["lines"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{directory}: the run is damaged: {type(error).__name__}: {error}") from None


def write_rounds(directory: str | Path, rounds: Iterable[RoundLog], *, with_time: bool) -> None:
    """Replace the log of rounds. Only a simulation may log how long rounds took."""
    lines = [_line(log, with_time=with_time) for log in rounds]
    fresh = Path(directory) / f".{ROUNDS}.new"
    fresh.write_text("".join(lines), encoding="utf-8")
    fresh.replace(Path(directory) / ROUNDS)


def append_round(directory: str | Path, log: RoundLog, *, with_time: bool = False) -> None:
    """Append a round to the log."""
    with (Path(directory) / ROUNDS).open("a", encoding="utf-8") as file:
        file.write(_line(log, with_time=with_time))


def read_rounds(directory: str | Path) -> tuple[RoundLog, ...]:
    """Read the log of rounds; missing times are NaN."""
    lines = (Path(directory) / ROUNDS).read_text(encoding="utf-8").splitlines()
    return tuple(_round(json.loads(line)) for line in lines)


def _line(log: RoundLog, *, with_time: bool) -> str:
    facts = asdict(log)
    if not with_time:
        del facts["seconds"]
    return json.dumps(facts, ensure_ascii=False) + "\n"


def _round(values: dict[str, Any]) -> RoundLog:
    score = None if values["score"] is None else Score.of_json(values["score"])
    return RoundLog(**{"seconds": math.nan, **values, "joined": tuple(values["joined"]), "score": score})


def _timed(directory: Path, head: dict[str, Any], rounds: tuple[RoundLog, ...]) -> tuple[float, tuple[RoundLog, ...]]:
    """Return how long a real run took, if a silo's part is present, and its rounds with their times."""
    if not head["silos"]:
        return math.nan, rounds
    facts = json.loads((directory / SILOS / head["silos"][0] / VIEW).read_text(encoding="utf-8"))
    whole, *each = facts["time"]
    return whole, tuple(replace(log, seconds=seconds) for log, seconds in zip(rounds, each, strict=True))


def write_model(values: Tensor, model: nn.Module, path: Path) -> None:
    """Write a flat model, parameter by parameter; `model` gives them their names."""
    flat = FlatModel(copy.deepcopy(model))
    flat.values.data.copy_(values)
    named = {name: value.detach().clone().contiguous() for name, value in flat.module.named_parameters()}
    fresh = path.with_name(f".{path.name}.new")
    # A single entry: the order of several would differ from run to run, but the same model must give the same file.
    save_file(named, fresh, metadata={"rpdp": json.dumps({"format": FORMAT, "trained": flat.names})})
    fresh.replace(path)


def read_model(path: Path) -> Tensor:
    """Read the trained parameters as one flat tensor."""
    with safe_open(path, framework="pt") as file:
        names = json.loads((file.metadata() or {})["rpdp"])["trained"]
        return torch.cat([file.get_tensor(name).reshape(-1) for name in names])


def _write_view(view: SiloView, directory: Path, time: list[float] | None) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    view.plan.write(directory / "silo-plan.parquet")
    columns: dict[str, Any] = {"record": view.plan.ids, "draws": view.draws, "expected_draws": view.expected_draws}
    if view.correct is not None:
        columns["correct"] = view.correct
    with private_file(directory / "draws.parquet", overwrite=True) as file:
        pa_parquet.write_table(pa.table(columns), file)
    facts = {"joined": view.joined, "overdrawn": view.overdrawn, **({} if time is None else {"time": time})}
    (directory / VIEW).write_text(json.dumps(facts) + "\n", encoding="utf-8")


def write_groups(directory: Path, name: str, groups: Iterable[GroupScore]) -> None:
    """Write metrics by budget, which are sensitive."""
    (directory / SILOS).mkdir(parents=True, exist_ok=True, mode=0o700)
    with private_file(directory / SILOS / name, overwrite=True) as file:
        file.write(json.dumps([asdict(group) for group in groups], indent=2).encode() + b"\n")


def read_groups(directory: Path, name: str) -> tuple[GroupScore, ...]:
    """Read metrics by budget; nothing where none were measured, as by release 0.1."""
    path = directory / SILOS / name
    if not path.is_file():
        return ()
    return tuple(GroupScore(**group) for group in json.loads(path.read_text(encoding="utf-8")))


def _read_view(directory: Path, public: PublicPlan) -> SiloView:
    plan = SiloPlan.read(directory / "silo-plan.parquet")
    if plan.public.fingerprint != public.fingerprint:
        raise InputError(f"{directory}: the silo plan belongs to another public plan")
    draws = pa_parquet.read_table(directory / "draws.parquet")
    facts = json.loads((directory / VIEW).read_text(encoding="utf-8"))
    correct = np.asarray(draws["correct"]) if "correct" in draws.column_names else None
    return SiloView(
        plan=replace(plan, public=public),  # share one privacy curve among all silos
        joined=tuple(facts["joined"]),
        draws=np.asarray(draws["draws"]),
        expected_draws=np.asarray(draws["expected_draws"]),
        correct=correct,
        overdrawn=facts["overdrawn"],
    )
