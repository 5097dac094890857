"""A consent form page: three to five choices, what each can reveal and what it changes for the study; works offline.

A hospital puts the page into its own portal, or on a tablet. The choice is saved as a budgets file on the device of
whoever fills it in; a portal can listen for the event `rpdp-choice` instead. Nothing is chosen beforehand.
"""

from __future__ import annotations

import base64
import hashlib
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rpdp.budgets.validation import LARGEST_EPSILON
from rpdp.checks import require_delta, require_least
from rpdp.errors import InputError
from rpdp.setting_fields import one_of, read_section, setting, text
from rpdp.statements.odds_words import odds_of_budget
from rpdp.statements.page_templates import render_page

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.statements.odds_words import Odds
    from rpdp.statements.statement_words import Catalogue

LEAST, MOST = 3, 5
"""How many choices people compare well."""


def _epsilon(name: str, value: object) -> float:
    number = require_least(name, value, 0.0)
    if not 0.0 < number <= LARGEST_EPSILON:
        raise InputError(f"{name}={number:g} must be above 0 and at most {LARGEST_EPSILON:g}")
    return number


@dataclass(frozen=True)
class Choice:
    """`[[choice]]`: a budget that people can choose.

    Attributes:
        label: What it is called.
        epsilon: The lifetime ε of whoever chooses it.
        changes: What it changes for the study, in a sentence.
        delta: The lifetime δ.
    """

    label: str = setting(text, meaning="what the choice is called")
    epsilon: float = setting(_epsilon, meaning="the lifetime ε of whoever chooses it")
    changes: str = setting(text, meaning="what this choice changes for the study, in a sentence")
    delta: float = setting(require_delta, meaning="the lifetime δ that goes with it")

    @property
    def odds(self) -> Odds:
        """What it can reveal at most."""
        return odds_of_budget(self.epsilon, self.delta)


@dataclass(frozen=True)
class ConsentForm:
    """A file of choices.

    Attributes:
        title: The title of the page.
        purpose: What the data would be used for.
        choices: The choices, in the order of the page.
        hospital: Who asks.
        contact: Whom to ask.
        column: Whether people are named by "subject" or, where everybody has one record, by "record".
    """

    title: str = setting(text, meaning="the title of the page")
    purpose: str = setting(text, meaning="what the data would be used for, in plain words")
    hospital: str = setting(text, "")
    contact: str = setting(text, "")
    column: str = setting(one_of("subject", "record"), "subject")
    choices: tuple[Choice, ...] = setting(lambda _, value: value, ())

    @classmethod
    def read(cls, path: Path) -> ConsentForm:
        """Read a file of choices (TOML)."""
        try:
            values = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{path}: not a file of choices (TOML): {error}") from None
        return cls.of(values)

    @classmethod
    def of(cls, values: dict[str, Any]) -> ConsentForm:
        """Check the values of a file."""
        rest = dict(values)
        listed = rest.pop("choice", [])
        if not isinstance(listed, list) or not LEAST <= len(listed) <= MOST:
            raise InputError(f"a form needs {LEAST} to {MOST} choices, each as [[choice]]")
        choices = tuple(read_section(Choice, f"choice {number + 1}", one) for number, one in enumerate(listed))
        for what in ("label", "epsilon"):
            if len({getattr(one, what) for one in choices}) < len(choices):
                raise InputError(f"two choices have the same {what}; people could not tell them apart")
        if "choices" in rest:
            raise InputError("form.choices is not a setting; write each choice as [[choice]]")
        return read_section(cls, "form", rest | {"choices": choices})


def consent_form_page(form: ConsentForm, words: Catalogue) -> str:
    """Return a form as an HTML page."""
    script = files("rpdp.statements").joinpath("templates/consent_form.js").read_text("utf-8")
    return render_page(
        "consent_form.html.j2",
        words,
        form=form,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
