"""The silo plan: every record's probability or weight. A silo makes it for itself, and it never leaves the silo."""

from __future__ import annotations

import hashlib
import json
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pa_parquet

from rpdp.accounting.renyi_filter import ORDERS
from rpdp.budgets.bands import BAND_NAMES, counts_by_band
from rpdp.display import html_table
from rpdp.errors import PlanError, PrivacyRefusal, TamperedPlanError
from rpdp.planning.words import Words, words_for
from rpdp.private_files import private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from rpdp.planning.public_plan import PublicPlan

FORMATS = ("rpdp-silo-plan/1", "rpdp-silo-plan/2")
"""Format 2 has columns for accounts. A plan that needs none of them is written, and hashed, in format 1."""

COLUMN_TYPES: dict[str, np.dtype[Any]] = {
    "budget": np.dtype(np.float64),
    "q": np.dtype(np.float64),
    "cost": np.dtype(np.float64),
    "active_rounds": np.dtype(np.int32),
    "status": np.dtype(np.uint8),
}
ACCOUNT_COLUMN_TYPES: dict[str, np.dtype[Any]] = {
    "epsilon": np.dtype(np.float64),
    "delta": np.dtype(np.float64),
    "order": np.dtype(np.uint8),
}
DELTA_TOLERANCE = 1e-12
"""A δ counts as enough if it is below what is needed by no more than this fraction: it was written and read back."""

_OF_ONE_RUN: NDArray[np.float64] = np.zeros(0)
_NO_ORDERS: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
_MOST_GROUPS = 10
_META = b"rpdp"


class Status(IntEnum):
    """The reason for a record's sampling probability or weight."""

    SAMPLED = 0
    ALWAYS = 1
    BUDGET_TOO_SMALL = 2
    DELTA_TOO_SMALL = 3
    OTHER_PURPOSE = 4


@dataclass(frozen=True)
class Group:
    """Records with equal or similar budgets, and their share in the training."""

    low: float
    high: float
    records: int
    mean_q: float
    share_of_records: float
    share_of_batch: float
    left_out: int


def rows_by_budget(epsilon: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """The rows of up to ten groups: one per level if there are few levels, else bands of equal width in log ε."""
    levels = np.unique(epsilon[: min(len(epsilon), 100_000)])
    if levels.size <= _MOST_GROUPS and np.isin(epsilon, levels).all():
        edges = np.append(levels, np.inf)
    else:
        low, high = float(np.min(epsilon, initial=np.inf, where=epsilon > 0.0)), float(epsilon.max())
        edges = np.append(np.geomspace(low, high, _MOST_GROUPS + 1)[:-1], np.inf)
    index = np.clip(np.searchsorted(edges, epsilon, side="right") - 1, 0, len(edges) - 2)
    return [np.flatnonzero(index == i) for i in range(len(edges) - 1) if (index == i).any()]


@dataclass(frozen=True, eq=False)
class SiloPlan:
    """For every record: its budget, its q, the cost to reserve and the rounds it is active in.

    q is a sampling probability in training, and a record's weight in a run with a request.

    Arrays are in the order of the budget table, and per record: budgets of subjects are already split. A plan in which
    any record is over budget cannot be created.

    | column | sum account | Rényi account |
    |---|---|---|
    | `epsilon` | the lifetime ε in force | the same |
    | `budget` | the ε that this run may take | the divergence ρ that this run may take |
    | `cost` | the ε that it reserves | the ρ that it reserves |
    | `delta` | the δ at which that is priced, and which it reserves | 0: δ is part of the lifetime budget |
    | `order` | 0 | the number of its order |
    """

    public: PublicPlan
    ids: pa.ChunkedArray
    budget: NDArray[np.float64]
    q: NDArray[np.float64]
    cost: NDArray[np.float64]
    active_rounds: NDArray[np.int32]
    status: NDArray[np.uint8]
    estimator: str
    facts: Mapping[str, float]
    _: KW_ONLY
    epsilon: NDArray[np.float64] = field(default_factory=lambda: _OF_ONE_RUN)
    delta: NDArray[np.float64] = field(default_factory=lambda: _OF_ONE_RUN)
    order: NDArray[np.uint8] = field(default_factory=lambda: _NO_ORDERS)
    """By default, the columns of accounts are those of one run by itself: sum accounts, the δ of the plan."""

    def __post_init__(self) -> None:
        self._fill_in("epsilon", lambda: self.budget.copy())
        self._fill_in("delta", lambda: np.where(self.q > 0.0, self.public.delta, 0.0))
        self._fill_in("order", lambda: np.zeros(len(self.ids), dtype=np.uint8))
        for name, dtype in {**COLUMN_TYPES, **ACCOUNT_COLUMN_TYPES}.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != (len(self.ids),):
                expected = f"{len(self.ids):,} × {dtype}"
                raise PlanError(f"column {name} is {array.dtype} of shape {array.shape}, not {expected}")
            array.flags.writeable = False
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))
        self._check_promise()

    def _fill_in(self, name: str, values: Callable[[], NDArray[Any]]) -> None:
        if getattr(self, name) is _OF_ONE_RUN or getattr(self, name) is _NO_ORDERS:
            object.__setattr__(self, name, values())

    def _check_promise(self) -> None:
        """Refuse a plan in which a record is over budget, whoever made or stored it."""
        # Negated comparisons, so that NaN counts as a violation.
        over = int((~(self.cost <= self.budget)).sum())
        negative = int((~((self.cost >= 0.0) & (self.delta >= 0.0))).sum())  # it would return what others booked
        outside = int((~((self.q >= 0.0) & (self.q <= 1.0))).sum())
        rounds = int((~((self.active_rounds >= 0) & (self.active_rounds <= self.public.schedule.rounds))).sum())
        if over or negative or outside or rounds:
            raise PrivacyRefusal(
                f"this plan has {over:,} costs above their budget, {negative:,} costs below 0, {outside:,} "
                f"probabilities outside [0, 1] and {rounds:,} records active in rounds that do not exist, so it is "
                "refused; make a new one with assign()"
            )
        request = self.public.request
        if request is not None and request.estimator == "everyone" and ((self.q > 0.0) & (self.q < 1.0)).any():
            raise PlanError(
                "this plan has weights between 0 and 1, but in a request of the estimator everyone a record counts "
                "whole or not at all, so it is refused; make a new one with assign()"
            )

    def __len__(self) -> int:
        return len(self.q)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} records, {self.left_out:,} left out, {self.estimator})"

    def _repr_html_(self) -> str:
        """Counts by fixed bands. Means and limits of groups would show the budget of somebody who is alone in one."""
        counts = counts_by_band(self.epsilon), counts_by_band(self.epsilon[self.q == 0.0])
        title = f"{self!r} of {self.public!r}"
        return html_table(title, zip(BAND_NAMES, *counts, strict=True), ("budget", "records", "left out"))

    @property
    def words(self) -> Words:
        """What texts call q, its sum and its noise."""
        return words_for(self.public.purpose)

    @property
    def slack(self) -> NDArray[np.float64]:
        """The unused part of each budget: budget − cost."""
        return self.budget - self.cost

    @property
    def run_epsilon(self) -> NDArray[np.float64]:
        """What this run alone costs each record, as ε: reserved in a sum account, at the plan's δ in a Rényi one.

        Costs of several runs in a Rényi account do not add up in ε; this is for showing one run.
        """
        result = self.cost.copy()
        rows = self.order > 0
        if rows.any():
            result[rows] = self.public.curve.epsilon_above(self.q[rows])
        return result

    @property
    def expected_batch(self) -> float:
        """Σq, the mean number of records in a step, or the sum of all weights. It must stay in the silo."""
        return float(self.q.sum())

    @property
    def signal_to_noise(self) -> float:
        """Σq/σ, the number of records per step or release for each unit of noise."""
        return self.expected_batch / self.public.noise_multiplier

    @property
    def left_out(self) -> int:
        """The number of records that are never drawn."""
        return int((self.q == 0.0).sum())

    def groups(self) -> list[Group]:
        """Up to ten groups by budget: one per level if there are few levels, else bands of equal width in log ε."""
        return [self._group(rows) for rows in rows_by_budget(self.epsilon)]

    def _group(self, rows: NDArray[np.int64]) -> Group:
        total = self.expected_batch
        return Group(
            low=float(self.epsilon[rows].min()),
            high=float(self.epsilon[rows].max()),
            records=rows.size,
            mean_q=float(self.q[rows].mean()),
            share_of_records=rows.size / len(self),
            share_of_batch=float(self.q[rows].sum()) / total if total > 0 else 0.0,
            left_out=int((self.q[rows] == 0.0).sum()),
        )

    def summary(self) -> dict[str, Any]:
        """The plan in numbers, for `--json` and for the printed table. It must stay in the silo."""
        is_sampled = (self.q > 0.0) & (self.public.request is None)
        expected_draws = self.q * self.public.schedule.expected_participations * self.public.schedule.local_steps
        used = np.divide(self.cost, self.budget, out=np.zeros_like(self.cost), where=self.budget > 0.0)
        expected_draws *= self.active_rounds / self.public.schedule.rounds
        return {
            "records": len(self),
            "estimator": self.estimator,
            "facts": dict(self.facts),
            "expected_batch": self.expected_batch,
            "signal_to_noise": self.signal_to_noise,
            "left_out": self.left_out,
            "left_out_budget_too_small": int((self.status == Status.BUDGET_TOO_SMALL).sum()),
            "left_out_delta_too_small": int((self.status == Status.DELTA_TOO_SMALL).sum()),
            "in_every_batch": int((self.status == Status.ALWAYS).sum()),
            "rarely_drawn": int((is_sampled & (expected_draws < 1.0)).sum()),
            "largest_share_of_budget_used": float(np.max(used)),
            "mean_share_of_budget_used": float(np.mean(used)),
            "groups": [vars(group) for group in self.groups()],
        }

    def explain(self, record: str) -> str:
        """What this plan means for one record, in plain words."""
        row = int(pc.index(self.ids, pa.scalar(record, self.ids.type)).as_py())
        if row < 0:
            raise PlanError(f"no record {record!r} in this plan of {len(self):,} records")
        return _explanation(self, record, row)

    @property
    def _is_plain(self) -> bool:
        """Whether the columns of accounts say nothing that the others do not."""
        drawn = self.q > 0.0
        plain_delta = np.where(drawn, self.public.delta, 0.0)
        return bool(
            not self.order.any()
            and np.array_equal(self.epsilon, self.budget)
            and np.array_equal(np.where(drawn, self.delta, 0.0), plain_delta)
        )

    @property
    def _format(self) -> str:
        return FORMATS[0] if self._is_plain else FORMATS[1]

    @property
    def _column_types(self) -> dict[str, np.dtype[Any]]:
        return COLUMN_TYPES if self._is_plain else {**COLUMN_TYPES, **ACCOUNT_COLUMN_TYPES}

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the public plan, the estimator and its facts, and every column with its type.

        It is never cached, so it always describes the arrays as they are now.
        """
        facts = json.dumps(dict(self.facts), sort_keys=True)
        digest = hashlib.sha256(f"{self._format}\n{self.public.fingerprint}\n{self.estimator}\n{facts}\n".encode())
        digest.update(_digest_of_strings(self.ids))
        for name, dtype in self._column_types.items():
            array = getattr(self, name)
            digest.update(f"{name} {dtype} {array.size}\n".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def write(self, path: str | Path) -> None:
        """Write a Parquet file that only its owner may read; it also contains the public plan and the fingerprint."""
        meta = {
            "format": self._format,
            "public": self.public.to_json(),
            "estimator": self.estimator,
            "facts": dict(self.facts),
            "fingerprint": self.fingerprint,
        }
        columns = {name: getattr(self, name) for name in self._column_types}
        table = pa.table({"record": self.ids, **columns}).replace_schema_metadata({_META: json.dumps(meta).encode()})
        with private_file(path, overwrite=True) as file:
            pa_parquet.write_table(table, file)

    @classmethod
    def read(cls, path: str | Path) -> SiloPlan:
        """Read a Parquet file. Refuses a plan that does not match its fingerprint."""
        from rpdp.planning.public_plan import PublicPlan

        try:
            table = pa_parquet.read_table(path)
            meta = json.loads((table.schema.metadata or {})[_META])
            public = PublicPlan.from_json(meta["public"])
            columns = {name: table.column(name).to_numpy().copy() for name in table.column_names if name != "record"}
            plan = cls(
                public=public,
                ids=table.column("record"),
                **columns,
                estimator=meta["estimator"],
                facts=meta["facts"],
            )
        except (pa.ArrowInvalid, OSError, KeyError, json.JSONDecodeError) as error:
            raise PlanError(f"{path}: not a silo plan: {type(error).__name__}: {error}") from None
        if plan.fingerprint != meta["fingerprint"]:
            raise TamperedPlanError(f"{path}: the silo plan was altered; make it again from the budgets")
        return plan


def _digest_of_strings(ids: pa.ChunkedArray) -> bytes:
    """A hash of the ids in their order, independent of how they are split into chunks."""
    lengths, texts = hashlib.sha256(), hashlib.sha256()
    for chunk in ids.cast(pa.large_string()).chunks:
        _, offset_buffer, data = chunk.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
        lengths.update(np.diff(offsets).data)  # the texts alone would not tell ["ab", "c"] from ["a", "bc"]
        texts.update(memoryview(data or b"")[offsets[0] : offsets[-1]])
    return lengths.digest() + texts.digest()


def _explanation(plan: SiloPlan, record: str, row: int) -> str:
    public, schedule = plan.public, plan.public.schedule
    q = float(plan.q[row])
    opening = f"Record {record} allows ε = {plan.epsilon[row]:.4g}."
    status = Status(int(plan.status[row]))
    if status is Status.DELTA_TOO_SMALL:
        return f"{opening} It sits this run out: nothing is left of its δ. It could take part with a larger lifetime δ."
    if status is Status.BUDGET_TOO_SMALL:
        return (
            f"{opening} It sits this run out: {_least(plan)} would cost more over {public.describe()} at "
            f"{plan.words.noise} = {public.noise_multiplier:.4g}. It could take part with fewer rounds or more noise."
        )
    if status is Status.OTHER_PURPOSE:
        return f"{opening} It sits this run out: it is kept for runs of another purpose than {public.purpose}."
    if public.request is not None:
        return f"{opening} {_weighted(public, q)} {_reserved(plan, row)} {_risk(public, q)}"
    active = int(plan.active_rounds[row])
    draws = q * schedule.expected_participations * schedule.local_steps * active / schedule.rounds
    realised = _given_realised(plan, q, active)
    chance = "It is in every batch" if q >= 1.0 else f"It is drawn into each local step with probability {q:.4g}"
    rounds = "" if active == schedule.rounds else f" It is active in the first {active} of {schedule.rounds} rounds."
    return (
        f"{opening} {chance}, about {draws:.3g} times in {schedule.describe()}. {_reserved(plan, row)}{rounds}"
        f"{realised} {_risk(public, q)}"
    )


def _least(plan: SiloPlan) -> str:
    """The cheapest way to take part."""
    request = plan.public.request
    if request is None or request.estimator != "everyone":
        return f"even the smallest {plan.words.q}"
    return f"taking part (ε = {plan.public.curve.largest_cost:.4g} at δ = {plan.public.delta:g})"


def _weighted(public: PublicPlan, q: float) -> str:
    """How a record counts in the sums of a request."""
    weight = "in full (weight 1)" if q >= 1.0 else f"with weight {q:.4g}"
    releases = "the one release" if public.schedule.rounds == 1 else f"each of {public.schedule.rounds:,} releases"
    return f"It counts {weight} in {releases} of this run for {public.purpose}."


def _risk(public: PublicPlan, q: float) -> str:
    return (
        "Somebody who sees all updates can tell whether this record was included with an advantage of at most "
        f"{public.curve.advantage(q):.1%} over guessing."
    )


def _reserved(plan: SiloPlan, row: int) -> str:
    """What a record reserves, in the unit of its account."""
    budget, cost = float(plan.budget[row]), float(plan.cost[row])
    if plan.order[row]:
        return (
            f"That reserves a Rényi divergence of ρ = {cost:.4g} at order {ORDERS[plan.order[row]]:.4g}, "
            f"{cost / budget:.1%} of what this run may take."
        )
    is_own = plan.delta[row] < plan.public.delta * (1.0 - DELTA_TOLERANCE) and plan.public.request is None
    return (
        f"That reserves ε = {cost:.4g} ({cost / budget:.1%} of its budget) at δ = {plan.delta[row]:g} by the "
        f"{'rdp accountant' if is_own else plan.public.pricing}."
    )


def _given_realised(plan: SiloPlan, q: float, active: int) -> str:
    """The cost given a realised number of rounds, labelled as such; empty where the number is fixed."""
    schedule = plan.public.schedule
    count = schedule.count(active)
    if count.probabilities().max() > 1.0 - 1e-12:
        return ""
    joined = int(np.searchsorted(np.cumsum(count.probabilities()), 0.95))
    given = plan.public.curve.given(joined).epsilon(q)
    return (
        f" The promise averages over how often the silo takes part; given that it joined {joined} rounds (95 % of runs "
        f"join no more), the cost would be ε = {given:.4g}."
    )
