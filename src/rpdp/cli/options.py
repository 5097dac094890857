"""Options that several commands share, and the checked values that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.checks import require_choice, require_count
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.accounting import Accountant, Schedule
    from rpdp.budgets import BudgetTable, Distribution
    from rpdp.log_format import LogFormat
    from rpdp.studies.study_file import StudyFile

MOST_RECORDS = 100_000_000
"""More nominal records than this would not fit into memory."""

Rounds = Annotated[int, typer.Option("--rounds", "-T", help="Rounds that the server announces.")]
LocalSteps = Annotated[int, typer.Option("--local-steps", "-t", help="Noisy local steps in a joined round.")]
Participation = Annotated[
    float | None, typer.Option("--participation", help="Probability that a silo joins a round; the silo draws it.")
]
MaxParticipations = Annotated[
    int | None, typer.Option("--max-participations", help="With --participation: join at most this many rounds.")
]
Participations = Annotated[
    int | None,
    typer.Option(
        "--participations", help="Join exactly this many rounds, drawn by the silo (instead of --participation)."
    ),
]
Delta = Annotated[float, typer.Option("--delta", "-d", help="δ of the run, common to all records.")]
AccountantOption = Annotated[str, typer.Option("--accountant", help="pld (default) or rdp.")]
StudyFileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The study file (TOML).", show_default=False)]
Seed = Annotated[int | None, typer.Option("--seed", help="The seed; by default the first of the study file.")]
Method = Annotated[str | None, typer.Option("--method", help="The method; by default that of the study file.")]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Number of processes; by default one per core. Does not change results.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Wait = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0.0, help="Wait while another process writes the ledger."),
]
RecordsFile = Annotated[
    Path | None,
    typer.Option("--records", help="With budgets by person: the table of their records (record,subject)."),
]
LogFormatOption = Annotated[
    str, typer.Option("--log-format", help="text, or json: one JSON object per line of the log.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


def log_format_of(name: str) -> LogFormat:
    """A checked format of log lines."""
    from rpdp.log_format import LOG_FORMATS

    for known in LOG_FORMATS:
        if name == known:
            return known
    raise InputError(f"--log-format {name} must be one of {', '.join(LOG_FORMATS)}")


def method_of(given: str | None, spec: StudyFile) -> str:
    """The method to run: the option, or what the study file says."""
    from rpdp.studies.study_sections import METHOD_NAMES

    return spec.run.method if given is None else require_choice("--method", given, METHOD_NAMES)


def seed_of(given: int | None, spec: StudyFile) -> int:
    """The seed to run: the option, or the first of the study file."""
    return int(spec.run.seeds[0]) if given is None else require_count("--seed", given, least=0)


def workers_of(given: int | None, spec: StudyFile) -> int | None:
    """The number of processes: the option, or what the study file says, or None for the default."""
    return spec.run.workers if given is None else require_count("--workers", given, most=1024)


def schedule_of(
    rounds: int,
    local_steps: int,
    participation: float | None,
    max_participations: int | None,
    participations: int | None,
) -> Schedule:
    """The schedule that the options describe."""
    from rpdp.accounting import Schedule

    if participation is None and participations is None:
        raise InputError(
            "say how silos take part: --participation 0.5 (a coin), or --participations 8 (exactly 8 rounds)"
        )
    return Schedule(
        rounds,
        local_steps,
        participation=participation,
        max_participations=max_participations,
        participations=participations,
    )


def accountant_of(name: str) -> Accountant:
    """A checked accountant name."""
    from rpdp.accounting import ACCOUNTANTS

    for known in ACCOUNTANTS:
        if name == known:
            return known
    raise InputError(f"--accountant {name} must be one of {', '.join(ACCOUNTANTS)}")


def numbers_of(option: str, text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text!r} must be numbers separated by commas") from None


def fractions_of(option: str, text: str) -> tuple[float, ...]:
    """Shares between 0 and 1, separated by commas."""
    from rpdp.checks import require_fraction

    return tuple(require_fraction(option, number) for number in numbers_of(option, text))


def overrides_of(settings: list[str]) -> dict[str, tuple[float, ...]]:
    """`name=1,2,3` pairs of --set."""
    result = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting!r} must look like levels=0.1,1,5")
        if name in result:
            raise InputError(f"--set {name} is given twice")
        result[name] = numbers_of(f"--set {name}", text)
    return result


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """A schedule for JSON output."""
    from dataclasses import asdict

    return {**asdict(schedule), "expected_participations": schedule.expected_participations}


def sampled(distribution: Distribution, records: int, seed: int, prefix: str) -> BudgetTable:
    """A table of nominal records, numbered from 1."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from rpdp.budgets import BudgetTable

    require_count("records", records, most=MOST_RECORDS)
    numbers = pa.chunked_array([pa.array(np.arange(1, records + 1))]).cast(pa.string())
    padded = pc.utf8_lpad(numbers, max(4, len(str(records))), "0")
    return BudgetTable(pc.binary_join_element_wise(prefix, padded, "-"), distribution.sample(records, seed))
