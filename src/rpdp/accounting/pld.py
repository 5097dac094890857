"""Accounting with privacy-loss distributions (PLDs): the nearly exact cost of a record for a plan fixed in advance.

One step → τ-fold composition → mixture over the joined rounds → ε(δ), the worse of removing and adding the record
(privacy.md, section 3).
`upper_epsilon` and `upper_delta` return upper bounds: grids are pessimistic, mass beyond the grid counts as a certain
loss, and the numerical error of the transforms is bounded and added to δ. `lower_epsilon` returns lower bounds, from
the exact power of a test that an attacker could run (reject when the sum of rounded losses is large). The true cost
lies between the two. Numerical errors are estimates with margins (`composition.rounding_error`,
`step_loss.relative_error`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.composition import (
    DOUBLE,
    EXTENDED,
    GridTooLongError,
    Groups,
    Precision,
    TiltedLoss,
    coarsen,
    compose,
    tilt,
)
from rpdp.accounting.participation import ExplicitCount
from rpdp.accounting.renyi import LARGEST_ORDER, best_log_delta, log_moments, run_log_moments
from rpdp.accounting.row_sizes import equal_rows
from rpdp.accounting.step_loss import (
    LossMasses,
    StepCells,
    cell_counts,
    pessimistic,
    relative_error,
    rounded,
    step_cells,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.participation import ParticipationCount
    from rpdp.accounting.renyi import BestOrders

ACCURACY = 5.5e-4
"""The excess of an upper ε over the truth to aim for, relative to ε (relative to 0.05 where ε is smaller)."""

ACCURACY_FLOOR = 0.05
_LOST_SHARE = 1e-9
"""The mass beyond the grid over all steps, as a fraction of δ; it counts as a certain loss."""

_STEP_ERROR = 2e-14
"""The numerical error per step assumed for choosing the first tilt; results use the computed `TiltedLoss.error`."""

_ERROR_SHARE = 3e-4
"""The numerical error to aim for when a tilt is chosen, as a fraction of δ."""

_LARGEST_ERROR_SHARE = 1e-3
"""Above this fraction of δ, a row gets another pass, with a tilt chosen from the error of the last one."""

_OUTSIDE_SHARE = 1e-5
"""The mass that the window of the run may leave out, as a fraction of δ; all rounds together may leave out as much."""

_MOST_OUTSIDE, _LEAST_OUTSIDE = 1e-12, 4.5
"""Limits of that mass. Only without a tilt, where it does not depend on a guess of ε, may it exceed the upper one.

Below the lower one, in units of the precision of the transforms (1e-15 in double), it would vanish in rounding errors.
"""

_EXTENDED_GAIN = float(np.finfo(EXTENDED).eps / np.finfo(DOUBLE).eps)
"""The factor by which extended precision lowers the error."""

_MOST_CELLS = 2**17
_ROWS_AT_ONCE = 96
_CELLS_AT_ONCE = 2**17
"""Limits of a batch: many rows save time, long ones need memory."""

_MOST_PASSES = 5
_MOST_COARSENINGS = 8
_FAR_OFF = 0.7
"""A result below this fraction of its guess used a grid and tilt meant for another ε, so it gets another pass."""

_FAR_BELOW = 0.005
"""A lower bound this far below its upper bound is computed again, with more digits on a finer grid."""

_FINER = 0.2

_UNKNOWN = (np.inf, 0.0, 1.0, 0.0)
"""The result for a row that no grid can cover: ε, steepness, error, and the error as a fraction of δ."""

_WIDEST_WINDOW = 1200.0
_LEAST_STEEPNESS = 1e-3
_LARGEST_EPSILON = 200.0
"""An ε above this says nothing about privacy, so the Rényi bound is returned as it is."""


@dataclass(frozen=True)
class Run:
    """A run as the accountant sees it: noise, steps per joined round, and the distribution of joined rounds."""

    noise_multiplier: float
    local_steps: int
    count: ParticipationCount

    @property
    def steps(self) -> int:
        """The largest number of local steps."""
        return self.local_steps * self.count.largest


@dataclass(frozen=True)
class _Grid:
    """Sampling probabilities, each with its tilt, the mass its window may leave out, and its two grid spacings."""

    q: FloatArray
    tilt: FloatArray
    outside: FloatArray
    step_spacing: FloatArray
    round_spacing: FloatArray
    lost: float
    precision: Precision = DOUBLE

    def coarser(self) -> _Grid:
        return replace(self, step_spacing=2.0 * self.step_spacing, round_spacing=2.0 * self.round_spacing)

    def take(self, rows: NDArray[np.int64] | list[int]) -> _Grid:
        chosen = {name: getattr(self, name)[rows] for name in ("q", "tilt", "outside", "step_spacing", "round_spacing")}
        return replace(self, **chosen)


def upper_epsilon(q: FloatArray, run: Run, delta: float, guide: BestOrders, accuracy: float = ACCURACY) -> FloatArray:
    """Upper bounds on ε(δ) for each q.

    The Rényi bound `guide` determines tilt and grid. It affects how tight the result is, never whether it is valid.
    If the result is much smaller than the guide, or the numerical error uses up a part of δ that a stronger tilt can
    lower, the result guides another pass. Rows whose guide is 0 or too large to matter keep the guide's bound.
    """

    def solve(grid: _Grid) -> FloatArray:
        # The mass beyond the grid is paid for with δ before ε is read off: it counts as a certain loss.
        removing, adding = _both_ways(grid, run, lambda loss: _smallest_epsilon(loss, delta - grid.lost * run.steps))
        return np.where(removing[0] >= adding[0], removing, adding)

    result = guide.bound.copy()
    guess, steepness = guide.bound.copy(), guide.theta.copy()
    error = np.full(q.shape, run.steps * _STEP_ERROR)
    rows = np.flatnonzero((guess > 0.0) & (guess < _LARGEST_EPSILON))
    for precision in (DOUBLE, EXTENDED):
        unresolved = np.zeros(q.shape, dtype=bool)
        for _ in range(_MOST_PASSES):
            if rows.size == 0:
                break
            theta = guide.theta[rows]
            tilts, outside = _choose_tilt(q[rows], run, guess[rows], delta, theta, error[rows], precision)
            grid = _choose_grid(
                q[rows], run, guess[rows], steepness[rows], accuracy, tilts, _LOST_SHARE * delta, outside, precision
            )
            epsilon, steepness[rows], error[rows], share = _in_batches(solve, grid, run, _UNKNOWN)
            result[rows] = np.fmin(epsilon, result[rows])  # every pass gives a valid bound: keep the smallest
            unresolved[rows] = share > _LARGEST_ERROR_SHARE
            again = (epsilon < _FAR_OFF * guess[rows]) | (unresolved[rows] & (tilts < theta))
            rows = rows[again & (guess[rows] > ACCURACY * ACCURACY_FLOOR)]
            guess[rows] = np.maximum(result[rows], ACCURACY * ACCURACY_FLOOR)
        # What is left of the error can only be lowered by transforms with more digits.
        rows = np.flatnonzero(unresolved & (result > ACCURACY * ACCURACY_FLOOR))
        guess[rows], error[rows], accuracy = result[rows], error[rows] * _EXTENDED_GAIN, accuracy * _FINER
    return result


def upper_delta(q: FloatArray, run: Run, epsilon: float, guide: BestOrders, accuracy: float = ACCURACY) -> FloatArray:
    """Upper bounds on δ(ε) for each q. The Rényi bound `guide` on log δ determines tilt and grid."""
    least = float(np.exp(np.clip(guide.bound.min(), -600.0, 0.0)))

    def solve(grid: _Grid) -> FloatArray:
        worse = np.maximum(*_both_ways(grid, run, lambda loss: _delta_at(loss, epsilon)))
        return np.asarray(worse + grid.lost * run.steps)

    guess = np.full(q.shape, max(epsilon, ACCURACY_FLOOR))
    tilts, outside = _choose_tilt(q, run, guess, least, guide.theta, np.full(q.shape, run.steps * _STEP_ERROR))
    grid = _choose_grid(q, run, guess, guide.theta, accuracy, tilts, _LOST_SHARE * least, outside)
    return np.asarray(np.fmin(_in_batches(solve, grid, run, (1.0,))[0], 1.0))


def lower_epsilon(q: FloatArray, run: Run, delta: float, upper: FloatArray, accuracy: float = ACCURACY) -> FloatArray:
    """Lower bounds on ε(δ): what an attacker who sums rounded losses can prove. At least 0, never above the truth.

    The upper bounds `upper` determine tilt and grid. Rows where they are 0 or too large to matter get 0. Counts of
    joined rounds that were rounded up prove nothing about the true ones; those rounded down take their place.
    """
    if isinstance(run.count, ExplicitCount) and run.count.rounded_down is not None:
        run = replace(run, count=run.count.rounded_down)

    def solve(grid: _Grid) -> FloatArray:
        cells = _cells(grid, run, centred=True)
        ways = (_proven_epsilon(cells, grid, run, delta, removing=removing) for removing in (True, False))
        return np.maximum(*ways)[None, :]

    result = np.zeros(q.shape)
    rows = np.flatnonzero((upper > 0.0) & (upper < _LARGEST_EPSILON))
    theta = best_log_delta(q[rows], run.noise_multiplier, run.local_steps, run.count, upper[rows]).theta
    for precision in (DOUBLE, EXTENDED):
        for level in np.unique(np.ceil(upper[rows])):
            part = np.flatnonzero(np.ceil(upper[rows]) == level)
            at, tilts, outside = rows[part], theta[part], None
            if precision is EXTENDED:
                error = np.full(at.shape, run.steps * _STEP_ERROR * _EXTENDED_GAIN)
                tilts, outside = _choose_tilt(q[at], run, upper[at], delta, theta[part], error, precision)
            lost = _LOST_SHARE * delta * float(np.exp(-level))
            grid = _choose_grid(q[at], run, upper[at], theta[part], accuracy, tilts, lost, outside, precision)
            result[at] = np.maximum(result[at], _in_batches(solve, grid, run, (0.0,))[0])
        short = result[rows] < (1.0 - _FAR_BELOW) * upper[rows]
        rows, theta, accuracy = rows[short], theta[short], accuracy * _FINER
    return result


def _choose_tilt(
    q: FloatArray,
    run: Run,
    epsilon: FloatArray,
    delta: float,
    theta: FloatArray,
    error: FloatArray,
    precision: Precision = DOUBLE,
) -> tuple[FloatArray, FloatArray]:
    """The smallest tilt (0, θ/4, θ/2 or θ) whose numerical error is negligible beside δ, and the mass to leave out.

    Without a tilt the window is short even when rare losses are huge. With θ itself the error is relative to the
    Chernoff bound at ε, however small δ is. `error` is the error of the tilted masses.
    """
    # The log factor by which a tilt must lower the error; a single step has none.
    wanted = np.log(np.maximum(error, 1e-300)) - np.log(_ERROR_SHARE * delta)
    tilts, gain = np.zeros(q.shape), np.zeros(q.shape)
    for part in (0.25, 0.5, 1.0):
        rows = np.flatnonzero(gain < wanted)
        if rows.size == 0:
            break
        tilts[rows] = part * theta[rows]
        moment = run_log_moments(q[rows], 1.0 + tilts[rows], run.noise_multiplier, run.local_steps, run.count)
        gain[rows] = tilts[rows] * epsilon[rows] - moment
    most = np.where(tilts > 0.0, _MOST_OUTSIDE, 1.0)
    least = _LEAST_OUTSIDE * float(np.finfo(precision).eps)
    return tilts, np.clip(_OUTSIDE_SHARE * delta * np.exp(np.minimum(gain, 700.0)), least, most)


def _choose_grid(
    q: FloatArray,
    run: Run,
    guess: FloatArray,
    steepness: FloatArray,
    accuracy: float,
    tilts: FloatArray,
    lost: float,
    outside: FloatArray | None = None,
    precision: Precision = DOUBLE,
) -> _Grid:
    """Grid spacings for a given accuracy, with at most `lost` of the mass beyond the grid over the whole run.

    Connect-the-dots moves a loss by ξ with E[e^{−ξ}] = 1 and variance about spacing²/6. So n of these moves shift a
    tail that falls like e^{−θε} (`steepness` θ) by n (θ+1) spacing²/12. Each of the two grids gets half of the allowed
    shift (a single grid gets all of it).
    """
    moment = run.local_steps * log_moments(q, 1.0 + steepness, run.noise_multiplier)
    rounds = np.maximum(run.count.tilted_mean(moment), 1e-3)
    one_grid = run.local_steps == 1 or run.count.largest == 1
    allowed = accuracy * np.maximum(guess, ACCURACY_FLOOR) * (12.0 if one_grid else 6.0) / (steepness + 1.0)
    widest = 0.5 / (np.maximum(steepness, tilts) + 1.0)  # the estimate needs θ · spacing below about 1
    step_spacing = np.minimum(np.sqrt(allowed / (rounds * run.local_steps)), widest)
    round_spacing = np.minimum(np.sqrt(allowed / rounds), widest)
    outside = np.full(q.shape, _MOST_OUTSIDE) if outside is None else outside
    return _Grid(q, tilts, outside, step_spacing, round_spacing, lost / run.steps, precision)


def _in_batches(
    solve: Callable[[_Grid], FloatArray], grid: _Grid, run: Run, otherwise: tuple[float, ...]
) -> FloatArray:
    """Solve rows in batches with arrays of equal size; one column per row of the grid.

    A grid that is too long is coarsened a few times. Rows that are still too long get `otherwise`.
    """
    counts = cell_counts(grid.q, run.noise_multiplier, grid.step_spacing, grid.lost)
    result = np.empty((len(otherwise), grid.q.size))
    for equal in equal_rows(counts):
        together = int(np.clip(_CELLS_AT_ONCE // counts[equal[0]], 1, _ROWS_AT_ONCE))
        for rows in np.array_split(equal, -(-equal.size // together)):
            result[:, rows] = _solve_coarser(solve, grid.take(rows), otherwise)
    return result


def _solve_coarser(solve: Callable[[_Grid], FloatArray], batch: _Grid, otherwise: tuple[float, ...]) -> FloatArray:
    for _ in range(_MOST_COARSENINGS):
        try:
            return solve(batch)
        except GridTooLongError:
            if batch.q.size > 1:  # one long row must not coarsen the grids of the rest
                single = [_solve_coarser(solve, batch.take([row]), otherwise) for row in range(batch.q.size)]
                return np.concatenate(single, axis=1)
            batch = batch.coarser()
    return np.array(otherwise)[:, None]


def _cells(grid: _Grid, run: Run, *, centred: bool) -> StepCells:
    counts = cell_counts(grid.q, run.noise_multiplier, grid.step_spacing, grid.lost)
    if counts.max() > _MOST_CELLS:
        raise GridTooLongError(f"{counts.max():,} loss cells are needed, at most {_MOST_CELLS:,} are allowed")
    return step_cells(grid.q, run.noise_multiplier, grid.step_spacing, grid.lost, centred=centred)


def _composed(step: LossMasses, tilts: FloatArray, grid: _Grid, run: Run) -> Groups:
    """The run's loss distribution from that of one step, in groups of rows with arrays of equal size."""
    groups = [(np.arange(grid.q.size), tilt(step, tilts, relative_error(run.noise_multiplier, grid.lost)))]
    if run.local_steps > 1:
        steps, outside = ExplicitCount.exactly(run.local_steps), grid.outside / run.count.largest
        groups = _split(groups, lambda rows, loss: compose(loss, steps, outside[rows], grid.precision))
        if run.count.largest > 1:
            groups = _split(groups, lambda rows, loss: coarsen(loss, grid.round_spacing[rows]))
    return _split(groups, lambda rows, loss: compose(loss, run.count, grid.outside[rows], grid.precision))


def _split(groups: Groups, then: Callable[[NDArray[np.int64], TiltedLoss], Groups]) -> Groups:
    return [(rows[part], result) for rows, loss in groups for part, result in then(rows, loss)]


def _both_ways(grid: _Grid, run: Run, read: Callable[[TiltedLoss], FloatArray]) -> list[FloatArray]:
    """What `read` finds in dominating loss distributions of the run, removing and adding the record: a column a row."""
    cells = _cells(grid, run, centred=False)
    steps = [pessimistic(cells, removing=removing) for removing in (True, False)]
    return [_read(_composed(step, grid.tilt, grid, run), read) for step in steps]


def _read(groups: Groups, read: Callable[[TiltedLoss], FloatArray]) -> FloatArray:
    found = np.concatenate([read(loss) for _, loss in groups], axis=1)
    return found[:, np.argsort(np.concatenate([rows for rows, _ in groups]))]


def _untilting(loss: TiltedLoss, losses: FloatArray) -> FloatArray:
    """The factor that removes the tilt from masses at `losses`; a single number per row if there is no tilt.

    It may overflow far to the left of every loss of interest. The result is then infinite, which is never too small.
    """
    if not loss.tilt.any():
        return np.asarray(np.exp(loss.log_mass)[:, None])
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(loss.log_mass[:, None] - loss.tilt[:, None] * losses))


def _weights(loss: TiltedLoss, *, upper: bool = True) -> FloatArray:
    """The masses with the tilt removed, as large (or as small) as their relative error allows."""
    margin = np.exp(loss.relative if upper else -loss.relative)[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(loss.masses > 0.0, loss.masses * (_untilting(loss, loss.losses) * margin), 0.0)


def _error_at(loss: TiltedLoss, losses: FloatArray) -> FloatArray:
    """The numerical error of the probability of a loss above each of `losses`, and of δ there.

    Both are sums of the tilted masses with weights that rise once, to at most e^{−θ·loss}, and fall once.
    """
    with np.errstate(over="ignore"):
        return loss.error[:, None] * _untilting(loss, losses)


def _curve(loss: TiltedLoss) -> tuple[FloatArray, FloatArray]:
    """δ(ℓ_i) at each grid point ℓ_i, errors included, and the slope of the segment to its left.

    The slope is Σ_{j≥i} p_j e^{ℓ_i − ℓ_j}.
    δ(ℓ_i) = Σ_{j>i} p_j (1 − e^{ℓ_i − ℓ_j}) is computed as (1 − e^{−spacing}) · Σ_{j>i} slope_j, a sum of positive
    terms, so nothing cancels.
    """
    losses = loss.losses
    relative = losses - losses.mean(axis=1, keepdims=True)
    if float(relative[:, -1].max()) > _WIDEST_WINDOW / 2.0:
        raise GridTooLongError(f"losses spread over more than {_WIDEST_WINDOW}")
    falling = np.exp(-relative)
    with np.errstate(over="ignore"):
        slope = np.cumsum((_weights(loss) * falling)[:, ::-1], axis=1)[:, ::-1] / falling
    delta = np.zeros_like(slope)
    delta[:, :-1] = -np.expm1(-loss.spacing)[:, None] * np.cumsum(slope[:, :0:-1], axis=1)[:, ::-1]
    return delta + _error_at(loss, losses - loss.spacing[:, None]), slope


def _smallest_epsilon(loss: TiltedLoss, delta: float) -> FloatArray:
    """The smallest ε ≥ 0 with δ(ε) ≤ delta, infinity where none is known.

    Further rows of the result: how steeply δ falls there, the numerical error of the tilted masses, and that error as a
    fraction of δ.
    """
    at_points, slope = _curve(loss)
    enough = at_points <= delta
    index = np.argmax(enough, axis=1)
    rows = np.arange(index.size)
    at_index = loss.losses[rows, index]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Between two points δ is linear in e^ε: δ(ε) = δ(ℓ_i) + slope (1 − e^{ε − ℓ_i}).
        step_back = np.log1p(-(delta - at_points[rows, index]) / slope[rows, index])
    # ε lies on the segment that ends at this point, so it can be at most one spacing further left.
    step_back = np.where(np.isnan(step_back), -loss.spacing, np.maximum(step_back, -loss.spacing))
    epsilon = np.maximum(at_index + np.where(index > 0, step_back, 0.0), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        fall = np.log(slope[rows, index] / slope[rows, np.minimum(index + 1, slope.shape[1] - 1)]) / loss.spacing
    steepness = np.clip(np.where(np.isnan(fall), 0.0, fall), _LEAST_STEEPNESS, LARGEST_ORDER)
    solved = enough[rows, index] & np.isfinite(epsilon)
    epsilon = np.where(solved, epsilon, _beyond_the_window(loss, delta))
    share = _error_at(loss, (epsilon - loss.spacing)[:, None])[:, 0] / delta
    return np.stack([epsilon, steepness, loss.error, share])


def _beyond_the_window(loss: TiltedLoss, delta: float) -> FloatArray:
    """The ε to the right of the window at which the error has fallen to δ; infinity without a tilt.

    No mass is left there, so the error is all that counts.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        error_is_delta = (np.log(loss.error) + loss.log_mass - np.log(delta)) / loss.tilt
    last = loss.losses[:, -1] + loss.spacing
    known = (loss.tilt > 0.0) & ~np.isnan(error_is_delta)
    return np.where(known, np.maximum(np.maximum(error_is_delta, last), 0.0), np.inf)


def _delta_at(loss: TiltedLoss, epsilon: float) -> FloatArray:
    """δ(ε), also between grid points, where the discretised δ is known exactly; 1 to the left of the window."""
    at_points, slope = _curve(loss)
    index = np.ceil(epsilon / loss.spacing - loss.first).astype(np.int64)
    inside = np.clip(index, 0, at_points.shape[1] - 1)
    rows = np.arange(inside.size)
    value = at_points[rows, inside] - slope[rows, inside] * np.expm1(epsilon - loss.losses[rows, inside])
    beyond = _error_at(loss, np.full((inside.size, 1), epsilon))[:, 0]
    return np.where(index < 0, 1.0, np.where(index >= at_points.shape[1], beyond, value))[None, :]


def _proven_epsilon(cells: StepCells, grid: _Grid, run: Run, delta: float, *, removing: bool) -> FloatArray:
    """The ε proved by the test "the sum S of rounded losses exceeds t" at its best threshold t.

    It is the maximum over t of log((Pr[S > t] − δ) / Pr'[S > t]).
    """
    own_step, other_step = rounded(cells, removing=removing)
    own = _by_row(_composed(own_step, grid.tilt, grid, run))
    other = _by_row(_composed(other_step, grid.tilt + 1.0, grid, run))
    return np.array([_proven(own[row], other[row], delta, grid.lost * run.steps) for row in range(grid.q.size)])


def _by_row(groups: Groups) -> dict[int, TiltedLoss]:
    return {int(row): loss.take(np.array([place])) for rows, loss in groups for place, row in enumerate(rows)}


def _proven(own: TiltedLoss, other: TiltedLoss, delta: float, lost: float) -> float:
    """Errors count against the attacker: they lower Pr and raise Pr', so the result is never above the truth."""
    own_tail = np.cumsum(_weights(own, upper=False)[:, ::-1], axis=1)[0, ::-1]
    other_tail = np.cumsum(_weights(other)[:, ::-1], axis=1)[0, ::-1]
    index = own.first - other.first + np.arange(own_tail.size)
    inside = np.clip(index, 0, other_tail.size - 1)
    false_alarm = np.where(index < 0, 1.0, np.where(index >= other_tail.size, 0.0, other_tail[inside]))
    false_alarm = false_alarm + _error_at(other, own.losses)[0] + lost
    with np.errstate(divide="ignore", invalid="ignore"):
        proven = np.log(np.maximum(own_tail - _error_at(own, own.losses)[0] - delta, 0.0) / false_alarm)
    return float(np.where(np.isfinite(proven), proven, 0.0).max(initial=0.0))
