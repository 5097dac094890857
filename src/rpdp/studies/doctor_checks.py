"""The checks of `rpdp doctor`: each examines one topic and returns its findings."""

from __future__ import annotations

import copy
import os
import resource
import statistics
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.errors import PrivacyRefusal
from rpdp.federation.messages import Announcement
from rpdp.federation.workers import cores, default_workers, one_thread
from rpdp.methods import method_named
from rpdp.sampling import Seeded
from rpdp.studies.differentiable import require_differentiable
from rpdp.studies.doctor import DoctorFinding as Finding
from rpdp.studies.doctor import Level
from rpdp.studies.shortfalls import find_shortfalls, require_signal
from rpdp.tables.table_columns import SPARE_FEATURES
from rpdp.training import FlatModel, SlowKernelWarning, check_model, make_kernel, require_value_independent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from rpdp.federation import Silo
    from rpdp.federation.local_training import LocalTraining
    from rpdp.ledger import Ledger
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.study_data import SiloSource, Source

_KERNELS = {
    "AffineKernel": "closed form for a linear model, the fastest",
    "GhostKernel": "ghost clipping, fast",
    "VmapKernel": "per-record gradients by vmap, slower",
    "LoopKernel": "one record at a time, the slowest",
}
_WEAK_SIGNAL = 0.5
"""With Σq/σ below this, noise dominates a step. On the built-in tasks such runs stay near guessing."""


def data(source: Source) -> Iterator[Finding]:
    """Examine the records by silo: their number, values that are not finite, uninformative features and labels."""
    records = {name: len(held.train) for name, held in source.silos.items()}
    yield Finding(
        "ok", "data", f"{sum(records.values()):,} training records in {len(records)} silos ({_range(records.values())})"
    )
    yield from _of_tables(source)
    damaged = {name: int((~_finite(held)).sum()) for name, held in source.silos.items()}
    if any(damaged.values()):
        where = ", ".join(f"{name}: {count:,}" for name, count in damaged.items() if count)
        advice = "such a record contributes nothing but is charged all the same; fix it or leave it out"
        yield Finding("warning", "data", f"NaN or infinite values in records of {where}", advice)
    constant = _constant_features(source)
    if constant:
        named = f" ({', '.join(constant[:5])}{' …' if len(constant) > 5 else ''})" if source.features else ""
        message = f"{len(constant):,} features are the same in all records{named}"
        yield Finding("warning", "data", message, "they carry no information")
    single = [name for name, held in source.silos.items() if len(held.train) > 1 and _one_label(held)]
    if single:
        yield Finding(
            "warning", "data", f"all records have the same label in {', '.join(single)}", "check that this is intended"
        )
    small = [name for name, count in records.items() if count == 1]
    if small:
        yield Finding("warning", "data", f"a single record in {', '.join(small)}", "its silo releases mostly noise")
    if not any(len(held.test) for held in source.silos.values()):
        yield Finding("warning", "data", "there are no test records", "nothing will be measured")


def _of_tables(source: Source) -> Iterator[Finding]:
    """Say how the cells of tables were read; one table may hold several silos."""
    surveys = {id(held.survey): (name, held.survey) for name, held in source.silos.items() if held.survey is not None}
    for name, survey in surveys.values():
        where = f" (silo {name})" if len(surveys) > 1 else ""
        for is_warning, text, advice in survey.remarks():
            yield Finding("warning" if is_warning else "ok", "table", text + where, advice)


def model(module: nn.Module, source: Source, *, is_real: bool) -> list[Finding]:
    """Examine the layers for any that break the promise, and name the kernel that will be used."""
    found = [
        Finding(
            "problem" if each.level == "refuse" else "warning",
            "model",
            str(each),
            exit_code=3 * (each.level == "refuse"),
        )
        for each in check_model(module)
    ]
    if any(finding.level == "problem" for finding in found):
        return found
    unreached = require_differentiable(module, source.loss, {name: held.train for name, held in source.silos.items()})
    if unreached:
        message = f"the loss does not reach {', '.join(unreached[:5])}{' …' if len(unreached) > 5 else ''}"
        found.append(Finding("warning", "model", message, "they would only accumulate noise; freeze or remove them"))
    name, held = next(iter(source.silos.items()))
    found.extend(_value_findings(module, source, held, is_real=is_real))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SlowKernelWarning)
        kernel = make_kernel(FlatModel(copy.deepcopy(module)), source.loss, held.train)
    kind = type(kernel).__name__
    count = sum(value.numel() for value in module.parameters() if value.requires_grad)
    found.append(Finding("ok", "model", f"{count:,} trainable parameters; {_KERNELS.get(kind, kind)} (silo {name})"))
    slow = [str(each.message) for each in caught if issubclass(each.category, SlowKernelWarning)]
    found.extend(Finding("warning", "model", text, "use layers that the fast kernel supports") for text in slow)
    return found


def _value_findings(module: nn.Module, source: Source, held: SiloSource, *, is_real: bool) -> Iterator[Finding]:
    """Find out whether values of a record can make model and loss raise or slow. Only a real run refuses that."""
    try:
        notes = require_value_independent(module, source.loss, held.train)
    except PrivacyRefusal as refusal:
        advice = "a real run and a deployment refuse this model; a simulation does not"
        level: Level = "problem" if is_real else "warning"
        yield Finding(level, "model", str(refusal), advice, exit_code=3 * is_real)
        return
    yield from (Finding("warning", "promise", note) for note in notes)


def budgets(built: PreparedRun) -> Iterator[Finding]:
    """Find records whose budgets will not be used, and why."""
    summaries = {name: plan.summary() for name, plan in built.plans.items()}
    total = sum(len(plan) for plan in built.plans.values())

    def count(key: str) -> int:
        return sum(int(summary[key]) for summary in summaries.values())

    left_out = count("left_out")
    if not left_out:
        yield Finding("ok", "budgets", f"all {total:,} records can take part")
    if count("left_out_delta_too_small"):
        yield Finding(
            "warning",
            "budgets",
            f"{count('left_out_delta_too_small'):,} of {total:,} records sit out: nothing is left of their lifetime δ",
            "they need a larger lifetime δ",
        )
    if count("left_out_budget_too_small"):
        yield Finding(
            "warning",
            "budgets",
            f"{count('left_out_budget_too_small'):,} of {total:,} records sit out: their ε is too small for the method",
            "use fewer rounds, more noise, or method rpdp",
        )
    if count("rarely_drawn"):
        message = f"{count('rarely_drawn'):,} of {total:,} records are expected in less than one batch of the whole run"
        yield Finding("warning", "budgets", message, "they contribute almost nothing to the model")


def ledgers(built: PreparedRun, opened: Mapping[str, Ledger]) -> Iterator[Finding]:
    """Examine what the ledgers have left for a real run: who can take part, the signal, how many more runs fit."""
    run = built.spec.run.id
    known = [silo for silo, ledger in opened.items() if any(one.run == run for one in ledger.status().runs)]
    if known:
        message = f"run.id={run!r} is already in the ledger of {', '.join(known)}"
        yield Finding("problem", "ledger", message, "continue it with --resume, or give a new run a new id", 2)
    found = find_shortfalls(built, opened)
    for outlook in (one.outlook for one in found):
        level: Level = "warning" if outlook.missing or outlook.reduced or outlook.is_noise else "ok"
        yield from (Finding(level, "ledger", line) for line in outlook.lines())
        if outlook.runs_allowed == 0 and not known:
            message = f"silo {outlook.silo}: the policy admits no more runs (max_runs)"
            yield Finding("problem", "ledger", message, "ask the data steward to raise max_runs", 3)
    yield from (Finding("warning", "ledger", remark) for one in found for remark in one.remarks)
    try:
        require_signal(found)
    except PrivacyRefusal as refusal:
        yield Finding("problem", "ledger", str(refusal), exit_code=3)


def plan(built: PreparedRun) -> Iterator[Finding]:
    """Examine σ, the expected batch, and the signal-to-noise ratio of a step."""
    public = built.public
    curve = f"cost at q = 1: ε = {public.curve.largest_cost:.4g} ({public.accountant})"
    yield Finding("ok", "plan", f"{public.schedule.describe()} · σ = {public.noise_multiplier:.4g} · {curve}")
    batches = {name: plan.expected_batch for name, plan in built.plans.items()}
    yield Finding(
        "ok", "plan", f"expected batch {_range(batches.values())}, divided by the public B = {public.normaliser:.4g}"
    )
    signals = {name: plan.signal_to_noise for name, plan in built.plans.items()}
    weak = [name for name, signal in signals.items() if signal < _WEAK_SIGNAL]
    if not method_named(built.settings.method).is_protected:
        yield Finding("ok", "plan", f"no noise: method {built.settings.method} promises nothing")
    elif weak:
        message = f"signal to noise Σq/σ is only {_range(signals[name] for name in weak)} in {', '.join(weak)}"
        yield Finding("warning", "plan", message, "more records, larger budgets or fewer rounds raise it")
    else:
        yield Finding("ok", "plan", f"signal to noise Σq/σ {_range(signals.values())}")
    for note in public.notes:
        if note.startswith("not covered"):
            yield Finding("warning", "promise", note)


def resources(built: PreparedRun) -> Iterator[Finding]:
    """Estimate time and memory from measured local steps."""
    largest = max(built.silos, key=lambda silo: built.plans[silo.name].expected_batch)
    with one_thread():
        step = _step_seconds(built, largest)
        evaluating = _evaluation_seconds(built)
    schedule = built.public.schedule
    workers = _workers(built)
    steps = schedule.expected_participations * schedule.local_steps * len(built.silos)
    seconds = (steps * step + schedule.rounds * evaluating) / workers
    processes = f"{workers} process{'' if workers == 1 else 'es'}"
    yield Finding(
        "ok", "time", f"about {_duration(seconds)} in {processes}: {steps:,.0f} local steps of {step * 1e3:.3g} ms"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    message = f"about {peak / 1e6:,.0f} MB for the first process, {free / 1e6:,.0f} MB are free"
    if peak * 0.5 * (workers - 1) > free:
        yield Finding("warning", "memory", message, "use fewer workers or a smaller training.micro_batch")
    else:
        yield Finding("ok", "memory", message)


def machine(built: PreparedRun) -> Iterator[Finding]:
    """Examine randomness, threads and the output directory."""
    run = built.spec.run
    if run.is_production:
        examined = "as the ledgers have them" if built.seed is None else "as stated, not as earlier runs left them"
        yield Finding("ok", "randomness", f"a real run: secure randomness; budgets were examined {examined}")
    else:
        message = "seeded: a simulation, which protects nobody; a real run uses secure randomness"
        yield Finding("ok", "randomness", message)
    yield Finding(
        "ok", "threads", f"{cores()} cores, {_workers(built)} worker(s) with one thread each, torch {torch.__version__}"
    )
    output = built.spec.output / (str(run.id) if run.is_production else f"{built.settings.method}-{built.seed}")
    if output.is_dir() and any(output.iterdir()):
        yield Finding("warning", "output", f"{output} is not empty", "use --out, --resume or --force")


def _step_seconds(built: PreparedRun, silo: Silo) -> float:
    """Return the median time of three rounds of one local step each, on a copy; nothing is kept."""
    one = replace(built.public, schedule=replace(built.public.schedule, local_steps=1))
    plan = replace(built.plans[silo.name], public=one)
    training: type[LocalTraining] = silo.training
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowKernelWarning)  # already reported
        kernel = make_kernel(FlatModel(copy.deepcopy(built.model)), built.source.loss, silo.records)
    nobody = np.zeros(0, dtype=np.int64)
    times = []
    for number in range(1, 4):
        announcement = Announcement("doctor", "", 1, kernel.model.values.detach().clone())
        began = time.perf_counter()
        training(kernel, plan, Seeded(number)).run(silo.records, announcement, lambda: nobody)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _evaluation_seconds(built: PreparedRun) -> float:
    if built.evaluation is None:
        return 0.0
    flat = FlatModel(copy.deepcopy(built.model))
    began = time.perf_counter()
    built.evaluation.measure(flat)
    return time.perf_counter() - began


def _workers(built: PreparedRun) -> int:
    given = built.spec.run.workers
    parameters = sum(value.numel() for value in built.model.parameters() if value.requires_grad)
    return given or default_workers(parameters, len(built.silos))


def _finite(held: SiloSource) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    good = np.ones(len(held.train), dtype=np.bool_)
    for tensor in (*held.train.inputs, held.train.targets):
        if tensor.is_floating_point():
            good &= tensor.isfinite().reshape(len(good), -1).all(dim=1).numpy()
    return good


def _constant_features(source: Source) -> list[str]:
    """Return the columns of a table that have one value in all silos; images and sequences are not examined.

    A feature that a schema keeps for undeclared or missing values is meant to be constant.
    """
    tables = [held.train.inputs[0] for held in source.silos.values()]
    if any(table.dim() != 2 or not table.is_floating_point() for table in tables):
        return []
    whole = torch.cat(tables)
    constant = (whole == whole[:1]).all(dim=0).nonzero()[:, 0].tolist()
    names = source.features or [str(column) for column in range(whole.shape[1])]
    return [names[column] for column in constant if not names[column].endswith(SPARE_FEATURES)]


def _one_label(held: SiloSource) -> bool:
    targets = held.train.targets
    return not targets.is_floating_point() and bool((targets == targets[:1]).all())


def _range(values: object) -> str:
    numbers = sorted(float(value) for value in values)  # type: ignore[attr-defined]
    low, high = f"{numbers[0]:,.4g}", f"{numbers[-1]:,.4g}"
    return low if low == high else f"{low} – {high}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
