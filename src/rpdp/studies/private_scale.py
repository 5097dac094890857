"""`[table] scale = "private"`: features scaled by private statistics, asked and charged before training.

A silo's own mean and deviation would not be covered (privacy.md, rule 13). Here all silos answer one request of purpose
"statistics", about the columns of numbers of the schema. Its public ranges are where this starts: values outside count
as their nearest end. What silos release decides new ranges, which are public, the same for all silos, and part of the
schema whose fingerprint every plan carries.

| `scale_by` | asked | −1 and 1 are at |
|---|---|---|
| moments | mean and deviation: finds small differences in moderately wide ranges | mean ± 2 deviations |
| quantiles | quartiles: for very wide ranges, and for skewed columns | median − and + 3 distances to its quartile |

Either way within the declared range, which stays where an interval does not say enough.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError, RpdpError
from rpdp.studies.building import build
from rpdp.studies.private_evaluation import require_evaluation, require_room
from rpdp.studies.real_run import open_ledgers
from rpdp.studies.statistics_run import Question, plan_statistics, run_statistics
from rpdp.tables.table_columns import NumberColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rpdp.ledger import Ledger, MemoryAccount
    from rpdp.statistics import NoiseChoice, NoisyEstimate
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.statistics_run import AnsweredQuestion
    from rpdp.studies.study_file import MethodSettings, StudyFile

    Range = tuple[float, float]

NAME = "scale.json"
FORMAT = "rpdp-scale/1"
_SUFFIX = "-scale"
"""After the id of a run: the id of its statistics in the ledgers."""

_DEVIATIONS = 2.0
_QUARTILE_DISTANCES = 3.0
"""A quartile of a normal value is 0.674 deviations from the median, so both ways agree for normal values."""

_NARROWEST = 1e-3
"""The least width of a new range against the declared one: below it, noise may have made it."""

_QUANTILE_BINS = 200
"""Finer than elsewhere, because ranges are wide."""

_ASKED = {"moments": ("mean", "sd"), "quantiles": ("quantiles",)}


@dataclass(frozen=True)
class PrivateScale:
    """What private statistics made of the ranges of columns. All of it is public; `facts` is what its file holds."""

    facts: dict[str, Any]

    @property
    def ranges(self) -> dict[str, Range]:
        """The new range of every column that has one."""
        found = self.facts["columns"]
        return {name: (each["range"][0], each["range"][1]) for name, each in found.items() if each["is_measured"]}

    @property
    def note(self) -> str:
        """What plans say of it."""
        return (
            f"features are scaled by private statistics ({self.facts['by']}), asked of the same records before: at "
            f"most {100 * self.facts['share']:.3g} % of every lifetime budget, booked as a run of its own with purpose "
            "statistics"
        )

    def lines(self) -> list[str]:
        """In words."""
        told = []
        for name, each in self.facts["columns"].items():
            low, high = each["range"]
            stays = "" if each["is_measured"] else ", as declared: the private statistics do not say enough"
            told.append(f"private scale: {name} −1 at {low:g}, 1 at {high:g}{stays}")
        return [*told, f"cost of the scale: at most {100 * self.facts['share']:.3g} % of every lifetime budget"]

    def applied(self, spec: StudyFile) -> StudyFile:
        """The same study with these ranges in its schema."""
        table = spec.table
        assert table is not None
        columns = {
            name: _rescaled(column, self.ranges[name]) if name in self.ranges else column
            for name, column in table.schema.columns.items()
        }
        schema = replace(table.schema, columns=columns)
        return replace(spec, table=replace(table, schema=schema, scale=self))

    def write(self, directory: str | Path) -> None:
        """Write its file."""
        text = json.dumps(self.facts, indent=2, ensure_ascii=False)
        (Path(directory) / NAME).write_text(text + "\n", encoding="utf-8")


def read_scale(directory: str | Path) -> PrivateScale | None:
    """Read the scale of the run in a directory; None if it has none."""
    path = Path(directory) / NAME
    if not path.is_file():
        return None
    try:
        found = PrivateScale(json.loads(path.read_text(encoding="utf-8")))
        if found.facts["format"] != FORMAT:
            raise ValueError(f"its format is {found.facts['format']!r}, not {FORMAT!r}")
        _ = found.ranges, found.note
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path}: damaged: {type(error).__name__}: {error}") from None
    return found


def _rescaled(column: Any, new: Range) -> Any:
    fill = column.missing
    return replace(column, range=new, missing=None if fill is None else min(max(fill, new[0]), new[1]))


def wants_scale(spec: StudyFile) -> bool:
    """Whether a study asks for a private scale that it does not have yet."""
    return spec.table is not None and spec.table.wants_scale


def as_declared(spec: StudyFile) -> StudyFile:
    """The same study with the declared ranges: for what is planned and checked before anything is asked."""
    if not wants_scale(spec):
        return spec
    assert spec.table is not None
    return replace(spec, table=replace(spec.table, section=replace(spec.table.section, scale="declared")))


def scale_question(spec: StudyFile) -> Question:
    """What is asked for a scale; refused where there is nothing public to start from."""
    assert spec.table is not None
    section, schema = spec.table.section, spec.table.schema
    if schema.from_data:
        raise InputError(
            f'{spec.path}: table.scale="private" starts from public ranges, and this schema has none: from_data says '
            "that its ranges were read from the data. Declare ranges that are surely wide enough, from knowledge, and "
            "remove from_data"
        )
    columns = tuple(name for name, column in schema.columns.items() if isinstance(column, NumberColumn))
    if not columns:
        raise InputError(
            f'{spec.path}: table.scale="private" is about columns of numbers with a public range, and the schema has '
            "none; remove it"
        )
    for name, other in (("privacy.share", spec.privacy.share), ("evaluation.share", spec.evaluation.share)):
        if (other or 0.0) + section.scale_share > 1.0 + 1e-9:
            raise InputError(
                f"{spec.path}: {name}={other:g} and table.scale_share={section.scale_share:g} add up to more than the "
                "whole budget"
            )
    return Question(columns, _ASKED[section.scale_by], share=section.scale_share, quantile_bins=_QUANTILE_BINS)


def ask_for_scale(
    spec: StudyFile,
    settings: MethodSettings,
    seed: int | None,
    run: str,
    accounts: dict[str, MemoryAccount],
    *,
    others: Sequence[str] = (),
    resume: bool = False,
    wait: float = 0.0,
    require: Callable[[PreparedRun, Mapping[str, Ledger]], object] | None = None,
) -> PrivateScale | None:
    """Ask all silos for the scale that a study wants; None if it wants none.

    Asking again, after an interruption, gives the same scale and charges nothing.

    Args:
        spec: The study file.
        settings: The settings of the training that follows.
        seed: The seed of a simulation; None for a real run.
        run: The id of the real run that follows.
        accounts: The accounts of a simulation, which the training that follows shares.
        others: The ids of all trainings that follow, by default that run.
        resume: Whether that run began before.
        wait: For how many seconds to wait for each ledger that another process is writing.
        require: Called with the training that follows, as far as it is known, and the ledgers; what it raises ends it.
    """
    if not wants_scale(spec):
        return None
    assert spec.table is not None
    question, asked = scale_question(spec), f"{run}{_SUFFIX}" if seed is None else ""
    if seed is None:
        _require_room(spec, settings, run, others or (run,), require, resume=resume, wait=wait)
    try:
        answered = run_statistics(
            spec,
            question,
            seed,
            run=asked,
            resume=resume,
            wait=wait,
            accounts=accounts,
            on_choice=partial(_require_useful, spec, question),
        )
    except InputError as error:
        raise InputError(f"{spec.path}: table.scale: {error}") from None
    return PrivateScale(_facts(spec, question, answered))


def expected_scale(spec: StudyFile) -> list[str]:
    """What asking for a scale would cost, and how exact it would be; nothing if the study wants none."""
    if not wants_scale(spec):
        return []
    question = scale_question(spec)
    assert question.share is not None
    share = f"private scale: at most {100 * question.share:.3g} % of every lifetime budget"
    try:
        found = plan_statistics(spec, question, (question.share,), question.estimator)[0]
    except RpdpError as error:
        return [f"{share}; what to expect of it is not known: {error}"]
    return [f"{share}; to be expected: {', '.join(f'{one.name} ± {one.half_width:.3g}' for one in found.estimates)}"]


def _require_useful(spec: StudyFile, question: Question, choice: NoiseChoice) -> None:
    """Refuse to spend anything where no number is to be expected within a quarter of its range."""
    assert spec.table is not None
    widths = []
    for name in question.columns:
        column = spec.table.schema.columns[name]
        assert isinstance(column, NumberColumn)
        widths.append(column.range[1] - column.range[0])
    each = len(choice.estimates) // len(widths)
    firsts = choice.estimates[::each]
    if all(one.half_width >= width / 4 for one, width in zip(firsts, widths, strict=True)):
        told = ", ".join(f"{one.name} ± {one.half_width:.3g}" for one in firsts)
        raise InputError(
            f"a share of {question.share:g} tells next to nothing: {told} is to be expected. Nothing was spent; use a "
            'larger scale_share, or scale = "declared"'
        )


def _require_room(
    spec: StudyFile,
    settings: MethodSettings,
    run: str,
    trainings: Sequence[str],
    require: Callable[[PreparedRun, Mapping[str, Ledger]], object] | None,
    *,
    resume: bool,
    wait: float,
) -> None:
    """Refuse, before the scale is charged, what silos would refuse of the training that it is for."""
    asked = f"{run}{_SUFFIX}"
    with open_ledgers(spec, run, resume=resume, wait=wait) as ledgers:
        if any(status.run == asked for ledger in ledgers.values() for status in ledger.status().runs):
            return
        built = build(as_declared(spec), settings, None, ledgers)
        for silo in built.silos:
            require_room(silo, [*trainings, asked])
            silo.preview(trainings[0], built.public)
        require_evaluation(built, run, None, trainings=[*trainings, asked])
        if require is not None:
            require(built, ledgers)


def _facts(spec: StudyFile, question: Question, answered: AnsweredQuestion) -> dict[str, Any]:
    assert spec.table is not None
    schema, by = spec.table.schema, spec.table.section.scale_by
    grouped = answered.answers.inquiry.grouped(answered.answers.estimates())
    columns = {}
    for place, name in enumerate(question.columns):
        parts = grouped[place * len(question.wanted) : (place + 1) * len(question.wanted)]
        found = [each for _, numbers in parts for each in numbers]
        column = schema.columns[name]
        assert isinstance(column, NumberColumn)
        new = (_by_moments if by == "moments" else _by_quantiles)(found, column.range)
        columns[name] = {
            "declared": list(column.range),
            "range": list(new or column.range),
            "is_measured": new is not None,
            "estimates": [each.plain() for each in found],
        }
    released = answered.answers.released
    return {
        "format": FORMAT,
        "run": released.run,
        "seed": answered.seed,
        "by": by,
        "share": question.share,
        "noise_multiplier": answered.choice.noise_multiplier,
        "plan": released.public.fingerprint,
        "columns": columns,
    }


def _by_moments(found: Sequence[NoisyEstimate], declared: Range) -> Range | None:
    mean, deviation = found
    if deviation.low <= 0.0 or (mean.low, mean.high) == declared:  # as low as it can be: nothing is known
        return None
    return _within(declared, *(mean.value + sign * _DEVIATIONS * deviation.value for sign in (-1.0, 1.0)))


def _by_quantiles(found: Sequence[NoisyEstimate], declared: Range) -> Range | None:
    if any((one.low, one.high) == declared for one in found):
        return None
    first, median, third = (one.value for one in found)
    return _within(
        declared, median - _QUARTILE_DISTANCES * (median - first), median + _QUARTILE_DISTANCES * (third - median)
    )


def _within(declared: Range, low: float, high: float) -> Range | None:
    """A range within the declared one, rounded to numbers that people can read; None if it is hardly one."""
    width = declared[1] - declared[0]
    low, high = (float(f"{min(max(end, declared[0]), declared[1]):.4g}") for end in (low, high))
    low, high = max(low, declared[0]), min(high, declared[1])
    return (low, high) if high - low > _NARROWEST * width else None


def kept_scale(spec: StudyFile, directory: str | Path) -> StudyFile:
    """The study of a finished run as it was trained: with the scale that its directory keeps."""
    scale = read_scale(directory) if wants_scale(spec) else None
    return spec if scale is None else scale.applied(spec)


def scale_facts(directory: str | Path) -> dict[str, Any] | None:
    """What the file of a scale holds; None without one."""
    scale = read_scale(directory)
    return None if scale is None else scale.facts
