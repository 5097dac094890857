"""The sections of a study file, each a frozen dataclass: its settings with their limits and defaults.

Reading a study file does not load torch, so a misspelled key is reported at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rpdp.accounting import ACCOUNTANTS, Accountant
from rpdp.accounting.schedule import MOST_LOCAL_STEPS, MOST_ROUNDS
from rpdp.budgets import ACCOUNT_KINDS, PAPER, PARAMETER_SETS, AccountKind
from rpdp.checks import require_count, require_delta, require_fraction, require_number, require_positive
from rpdp.errors import InputError
from rpdp.methods import METHODS
from rpdp.metrics import metric_named
from rpdp.planning import BACKBONES, ESTIMATORS, OPTIMISERS, PURPOSES, Purpose
from rpdp.planning.request import REQUEST_ESTIMATORS, RequestEstimator
from rpdp.setting_fields import either, flag, list_of, one_of, plain_name, setting, table_of, text

if TYPE_CHECKING:
    from collections.abc import Mapping

METHOD_NAMES = tuple(METHODS)

_seed = partial(require_count, least=0)
_numbers = either(
    ((int, float), lambda name, value: (require_number(name, value),)),
    (list, list_of(require_number)),
    otherwise="a number or a list of numbers",
)


def reference(name: str, value: object) -> str:
    """Check the name of a function, "package.module:function"."""
    module, colon, function = text(name, value).partition(":")
    if not colon or not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f'{name}={value!r} must look like "package.module:function"')
    return str(value)


@dataclass(frozen=True)
class TaskSection:
    """`[task]`: a built-in task by name, or the user's own data, model and loss.

    Attributes:
        name: A built-in task (breast_cancer, digits, mnist_5k), or "package.module:function", which makes one.
        partition: How the data are divided among silos, where the task offers several ways.
        data: Instead of name: a function that returns the data in silos.
        model: A function that returns the model; required with data.
        loss: A function from outputs and targets to one value per record; required with data.
        correct: A function that says which answers are right, where no metric can read the outputs.
    """

    name: str | None = setting(text, None)
    partition: str | None = setting(text, None)
    data: str | None = setting(reference, None)
    model: str | None = setting(reference, None)
    loss: str | None = setting(reference, None)
    correct: str | None = setting(reference, None)

    def __post_init__(self) -> None:
        if self.name is not None and self.data is not None:
            raise InputError('task needs either name = "a built-in task" or data = "package.module:factory"')
        if self.data is not None:
            for key in ("model", "loss"):
                if getattr(self, key) is None:
                    raise InputError(f'task.{key} is missing: with task.data, give {key} = "package.module:function"')
            if self.partition is not None:
                raise InputError(
                    f"task.partition={self.partition!r} needs task.name; the data of task.data are divided into silos "
                    "already, so remove it"
                )


@dataclass(frozen=True)
class ScheduleSection:
    """`[schedule]`: rounds, local steps and participation; what is missing comes from the built-in task.

    Attributes:
        rounds: T, the rounds that the server announces; by default the task's.
        local_steps: τ, the noisy steps of a joined round; by default the task's.
        participation: λ, the chance that a silo joins a round; by default the task's.
        max_participations: With participation: a silo sits out after so many joined rounds.
        participations: Instead of participation: exactly so many rounds, drawn by the silo; recommended for real runs.
    """

    rounds: int | None = setting(partial(require_count, most=MOST_ROUNDS), None)
    local_steps: int | None = setting(partial(require_count, most=MOST_LOCAL_STEPS), None)
    participation: float | None = setting(require_fraction, None)
    max_participations: int | None = setting(require_count, None)
    participations: int | None = setting(require_count, None)

    def __post_init__(self) -> None:
        if self.participation is not None and self.participations is not None:
            raise InputError(
                f"schedule.participations={self.participations} (exactly this many rounds) and schedule.participation="
                f"{self.participation} (a coin per round) exclude each other; give one of them"
            )
        if self.participations is not None and self.max_participations is not None:
            raise InputError(
                f"schedule.max_participations={self.max_participations} limits schedule.participation; with "
                "schedule.participations, remove it"
            )


@dataclass(frozen=True)
class PrivacySection:
    """`[privacy]`: δ, where σ comes from, the clip norm, and how costs are computed.

    Attributes:
        delta: δ of the run, common to all records; by default the task's.
        max_epsilon: Policy: the cost of a record that is in every batch; σ follows from it.
        noise_multiplier: Instead of max_epsilon: σ itself.
        accountant: pld or rdp.
        estimator: How method rpdp turns budgets into probabilities: certified, binary_search or scf.
        share: The largest share of a lifetime budget that the run asks for; silos may allow less.
        account: The kind of account of all silos, renyi or sums; needed if policy.silos_per_person is above 1.
    """

    clip_norm: float = setting(require_positive, meaning="L, the largest influence of one record on one step")
    delta: float | None = setting(require_delta, None)
    max_epsilon: float | None = setting(require_positive, None)
    noise_multiplier: float | None = setting(require_positive, None)
    accountant: Accountant = setting(one_of(*ACCOUNTANTS), "pld")  # noqa: RUF009
    estimator: str = setting(one_of(*ESTIMATORS), "certified")
    share: float | None = setting(require_fraction, None)
    account: AccountKind | None = setting(one_of(*ACCOUNT_KINDS), None)  # noqa: RUF009

    def __post_init__(self) -> None:
        if (self.max_epsilon is None) == (self.noise_multiplier is None):
            raise InputError(
                "privacy needs either max_epsilon (the cost of a record that is in every batch, which determines σ) or "
                "noise_multiplier (σ itself)"
            )


@dataclass(frozen=True)
class BudgetSection:
    """`[budgets]`: drawn from a distribution, or read from one file for each silo.

    Attributes:
        distribution: ThreeLevels, BoundedPareto or BoundedMixGauss: made-up budgets, new for every seed and silo.
        files: Instead of distribution: the budget file of every silo, by record or by person.
        records: With budgets by person: for every silo the table of records and their persons (record,subject), unless
            the data name them.
        declared: Required with files: the distribution that public settings are computed from.
        parameters: Parameters of the distribution: paper or authors.
        overrides: Other parameters of the distribution, such as {levels = [0.1, 1.0, 5.0]}.
        records_per_silo: Declared number of training records of a silo; else the mean is used, and noted.
    """

    distribution: str | None = setting(one_of(*PAPER), None)
    files: Mapping[str, str] | None = setting(table_of(text), None)
    records: Mapping[str, str] | None = setting(table_of(text), None)
    declared: str | None = setting(one_of(*PAPER), None)
    parameters: str = setting(one_of(*PARAMETER_SETS), "paper")
    overrides: Mapping[str, tuple[float, ...]] | None = setting(table_of(_numbers), None)
    records_per_silo: int | None = setting(require_count, None)

    def __post_init__(self) -> None:
        if (self.distribution is None) == (self.files is None):
            raise InputError('budgets needs either distribution = "ThreeLevels" or files = {silo = "budgets.csv"}')
        if self.records is not None and not set(self.records) <= set(self.files or ()):
            raise InputError("budgets.records names silos without a budget file; it goes with budgets.files by person")
        if self.files is not None and self.declared is None:
            raise InputError(
                "budgets.declared is missing: with files, name the distribution from which public settings are "
                "computed (real budgets must not influence them)"
            )
        if self.distribution is not None and self.declared is not None:
            raise InputError(
                f"budgets.declared={self.declared!r} needs budgets.files; budgets.distribution is declared already, so "
                "remove it"
            )


@dataclass(frozen=True)
class TrainingSection:
    """`[training]`: how silos train and the server averages. None of this changes a cost.

    Attributes:
        decay: Factor on the learning rate from round to round.
        optimiser: sgd or adam.
        momentum: Of sgd.
        micro_batch: Larger draws are summed in pieces of at most this size, and never of more than 512 records.
        averaged_rounds: The result is the mean of the models after the last so many rounds.
        backbone: fedavg, fedprox, scaffold, fedavgm or fedadam.
        backbone_settings: Settings of the backbone, such as {proximal = 0.01}.
        weights: Weights of the silos in the average, from declared sizes, or "equal", the default.
        tuned: Whether these rates were chosen by results on private records; the plan then says so.
    """

    learning_rate: float = setting(require_positive, meaning="the learning rate of the local optimiser")
    decay: float = setting(require_fraction, 1.0)
    optimiser: str = setting(one_of(*OPTIMISERS), "sgd")
    momentum: float = setting(require_number, 0.0)
    micro_batch: int = setting(require_count, 1024)
    averaged_rounds: int = setting(require_count, 1)
    backbone: str = setting(one_of(*BACKBONES), "fedavg")
    backbone_settings: Mapping[str, float] | None = setting(table_of(require_number), None)
    weights: Mapping[str, float] | None = setting(
        either((str, one_of("equal")), (dict, table_of(require_number)), otherwise='"equal" or numbers by silo'), None
    )
    tuned: bool = setting(flag, False)

    def __post_init__(self) -> None:
        if isinstance(self.weights, str):
            object.__setattr__(self, "weights", None)


def metric(name: str, value: object) -> str:
    """Check a metric: a known name, or "package.module:function"."""
    given = text(name, value)
    if ":" in given:
        return reference(name, value)
    try:
        return metric_named(given).name
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


@dataclass(frozen=True)
class EvaluationSection:
    """`[evaluation]`: what is measured on the silos' test records: openly in simulations; with a share, privately.

    With `share`, test records have budgets and accounts like all others. After the last round silos release noisy sums
    over them, from which metrics with intervals are made.

    Attributes:
        metrics: Names of metrics, such as ["auc", "accuracy"], or "package.module:function"; the first one decides.
        yardsticks: For comparisons: columns of the table that hold a score, larger for the second class, measured on
            the same test records; never features.
        share: Of each test record's lifetime budget, for the private evaluation of the final model.
        estimator: everyone (exact, for records whose budget pays for weight 1), or representative (all, if outputs do
            not depend on budgets).
        records: With share: the declared number of test records of a silo.
        positives: The declared share of class 1, by default one half; it only serves to foresee intervals.
        bound: For mae and rmse: larger errors count as this one. Declare it, do not look for it.
        widest: Of the first metric: if half its interval would be longer than this, nothing is evaluated or spent.
        every: With share: also evaluate the models after every so many rounds, and keep the best one.
        by: With share: metrics for each group as well: a column of the table with levels, or "silo".
    """

    metrics: tuple[str, ...] | None = setting(list_of(metric), None)
    yardsticks: tuple[str, ...] | None = setting(list_of(text), None)
    share: float | None = setting(require_fraction, None)
    estimator: RequestEstimator = setting(one_of(*REQUEST_ESTIMATORS), "everyone")  # noqa: RUF009
    records: int | None = setting(require_count, None)
    positives: float = setting(require_fraction, 0.5)
    bound: float | None = setting(require_positive, None)
    widest: float = setting(require_positive, 0.1)
    every: int | None = setting(require_count, None)
    by: str | None = setting(text, None)

    def __post_init__(self) -> None:
        if (self.share is None) != (self.records is None):
            raise InputError(
                "evaluation.share and evaluation.records belong together: the share of budgets for private evaluation, "
                "and the declared number of test records of a silo"
            )
        for name in ("every", "by"):
            if self.share is None and getattr(self, name) is not None:
                raise InputError(f"evaluation.{name} is about private evaluation: give evaluation.share, or remove it")


@dataclass(frozen=True)
class MethodSection:
    """`[methods.NAME]`: settings of one method that differ from the common ones.

    Attributes:
        learning_rate: Instead of that of [training].
        clip_norm: Instead of that of [privacy].
        level: The public ε of threshold and uniform, which need it.
    """

    learning_rate: float | None = setting(require_positive, None)
    clip_norm: float | None = setting(require_positive, None)
    level: float | None = setting(require_positive, None)


@dataclass(frozen=True)
class RunSection:
    """`[run]`: the method, the seeds, and where the results go.

    Without seeds it is a real run and needs an id; its data are split as for seed 0.

    Attributes:
        method: The method of `rpdp train`.
        seeds: A number of seeds or a list of them; without seeds it is a real run.
        first_seed: The first of a number of seeds, by default 1.
        id: The name of a real run in the ledgers.
        purpose: What the run is for; silos book it. A silo trains for `training` alone.
        study: The name of the study that the run belongs to. Silos book it.
        output: Directory for results, from the current directory; by default `runs/` and the study file's name.
        split: fixed: one split into training and test records; by_seed: each seed has its own.
        workers: Processes to train in; it does not change results.
    """

    method: str = setting(one_of(*METHOD_NAMES), "rpdp")
    seeds: tuple[int, ...] = setting(
        either((int, require_count), (list, list_of(_seed)), otherwise="a number of seeds or a list of them"), None
    )
    first_seed: int | None = setting(_seed, None)
    id: str | None = setting(plain_name, None)
    purpose: Purpose = setting(one_of(*PURPOSES), "training")  # noqa: RUF009
    study: str = setting(text, "")
    output: str | None = setting(text, None)
    split: str = setting(one_of("fixed", "by_seed"), "fixed")
    workers: int | None = setting(partial(require_count, most=1024), None)
    is_production: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        if self.seeds is None and self.first_seed is None:
            object.__setattr__(self, "is_production", True)
            object.__setattr__(self, "seeds", (0,))
        elif isinstance(self.seeds, int):
            first = 1 if self.first_seed is None else self.first_seed
            object.__setattr__(self, "seeds", tuple(range(first, first + self.seeds)))
        elif self.first_seed is not None:
            raise InputError(f"run.first_seed={self.first_seed} needs a number of seeds, such as seeds = 5")
