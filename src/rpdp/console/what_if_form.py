"""The settings of the what-if page: what its form holds at first, and what it may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp.budgets import PAPER
from rpdp.checks import require_choice, require_count, require_delta, require_fraction, require_positive
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rpdp.deployment.files.silo_file import LimitSection


def forecast_settings(asked: Mapping[str, str], limits: LimitSection) -> dict[str, str]:
    """The settings of a form; what it does not say is the largest run that the policy admits."""
    defaults = _defaults(limits)
    return {name: asked.get(name, value)[:100] for name, value in defaults.items()}


def checked_settings(settings: dict[str, str]) -> dict[str, Any]:
    """The settings of a forecast as numbers; refused if one makes no sense."""
    checked: dict[str, Any] = {
        "source": require_choice("source", settings["source"], ["declared", "ledger"]),
        "distribution": require_choice("distribution", settings["distribution"], list(PAPER)),
        "account": require_choice("account", settings["account"], ["renyi", "sums"]),
    }
    for name, most in (("records", 100_000_000), ("rounds", 10_000), ("local_steps", 10_000), ("runs", 10_000)):
        text = settings[name]
        checked[name] = require_count(name, int(text) if text.isascii() and text.isdigit() else text, most=most)
    for name, require in (
        ("participation", require_fraction),
        ("share", require_fraction),
        ("noise_multiplier", require_positive),
        ("delta", require_delta),
        ("lifetime_delta", require_delta),
    ):
        try:
            number = float(settings[name])
        except ValueError:
            raise InputError(f"{name}={settings[name]!r} must be a number") from None
        checked[name] = require(name, number)
    return checked


def _defaults(limits: LimitSection) -> dict[str, str]:
    return {
        "source": "declared",
        "distribution": "ThreeLevels",
        "records": "1000",
        "account": "renyi",
        "rounds": str(limits.max_rounds),
        "local_steps": str(limits.max_local_steps),
        "participation": f"{limits.max_participation:g}",
        "noise_multiplier": f"{limits.min_noise_multiplier:g}",
        "delta": f"{limits.lifetime_delta:g}",
        "lifetime_delta": f"{limits.lifetime_delta:g}",
        "share": f"{limits.max_share_per_run or 0.1:g}",
        "runs": "10",
    }
