"""Reference pages made from the code, so that they cannot fall behind it.

A page holds a line `<!-- generated: NAME -->`; when Sphinx reads the page, the line is replaced by Markdown. The names
are the keys of `_PARTS`. Docstrings are written in Markdown; their tables are turned into what autodoc understands.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
import typer.main

import rpdp
from rpdp.cli.app import app as command_line
from rpdp.deployment.files import silo_file
from rpdp.federation.stated_limits import PolicySection
from rpdp.metrics import METRICS
from rpdp.studies import study_sections, study_tables, tuning_sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from docutils.nodes import Element, reference  # type: ignore[import-untyped]
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_MARKER = re.compile(r"^<!-- generated: (.+?) -->$", re.MULTILINE)

_EXAMPLE = re.compile(r"^([^:`]+): `([^`]+)`$")

_FROM_SCIKIT_LEARN = "set_fit_request, set_score_request"
"""Methods that scikit-learn gives to every estimator; their docstrings refer to its own pages."""

_ROOMS = {
    "budgets": "Budgets",
    "accounting": "Accounting",
    "planning": "Plans",
    "sampling": "Randomness",
    "methods": "Methods",
    "training": "Training",
    "ledger": "Ledger",
    "metrics": "Metrics",
    "federation": "Federation",
    "one_silo": "One silo",
    "studies": "Studies",
    "report": "Reports",
}
"""Packages in the order of the page, and the title of each."""

STUDY = {
    "task": study_sections.TaskSection,
    "table": study_tables.TableSection,
    "model": study_tables.NetworkSection,
    "schedule": study_sections.ScheduleSection,
    "privacy": study_sections.PrivacySection,
    "budgets": study_sections.BudgetSection,
    "training": study_sections.TrainingSection,
    "evaluation": study_sections.EvaluationSection,
    "methods.NAME": study_sections.MethodSection,
    "run": study_sections.RunSection,
    "policy": PolicySection,
    "tuning": tuning_sections.TuningSection,
    "tuning.candidates": tuning_sections.CandidateSection,
}
SILO = {
    "silo": silo_file.SiloSection,
    "data": silo_file.DataSection,
    "models.NAME": silo_file.ModelSection,
    "requests": silo_file.RequestSection,
    "policy": silo_file.LimitSection,
    "metrics": silo_file.MetricsSection,
    "simulation": silo_file.SimulationSection,
}
_TYPES = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "Accountant": "text",
    "AccountKind": "text",
    "Purpose": "text",
    "RequestEstimator": "text",
    "Mapping[str, str]": "table of texts",
    "Mapping[str, float]": "table of numbers",
    "Mapping[Purpose, float]": "table of shares by purpose",
    "Mapping[str, tuple[float, ...]]": "table of numbers or lists",
    "tuple[CandidateSection, ...]": "list of tables",
    "tuple[int, ...]": "list of whole numbers",
    "tuple[float, ...]": "list of numbers",
    "tuple[str, ...]": "list of texts",
}


def python_surface() -> str:
    """Every name that `import rpdp` offers, by the package it comes from."""
    rooms: dict[str, list[str]] = {}
    for name in rpdp.__all__:
        if name not in ("__version__", "errors"):
            value = getattr(rpdp, name)
            home = value.__name__ if isinstance(value, ModuleType) else value.__module__
            rooms.setdefault(home.split(".")[1], []).append(name)
    lines = []
    for room in [*(room for room in _ROOMS if room in rooms), *sorted(rooms.keys() - _ROOMS.keys())]:
        lines += [f"## {_ROOMS.get(room, room.capitalize())}", "", "```{eval-rst}"]
        for name in rooms[room]:
            lines += [*_documented(name, getattr(rpdp, name)), ""]
        lines += ["```", ""]
    return "\n".join(lines)


def _documented(name: str, value: object) -> list[str]:
    if isinstance(value, ModuleType):
        return [f".. automodule:: {value.__name__}", "   :members:"]
    if inspect.isclass(value):
        return [f".. autoclass:: rpdp.{name}", "   :members:", f"   :exclude-members: {_FROM_SCIKIT_LEARN}"]
    return [f".. autofunction:: rpdp.{name}"]


def exceptions() -> str:
    """The tree of exceptions."""
    return "\n".join(["```{eval-rst}", ".. automodule:: rpdp.errors", "   :members:", "   :show-inheritance:", "```"])


def metrics() -> str:
    """Every metric by name, with what it is."""
    rows = [
        f"| `{one.name}` | {one.explanation} | {one.needs} | {'larger' if one.larger_is_better else 'smaller'} |"
        for one in METRICS.values()
    ]
    return "\n".join(["| metric | what it is | made from | better |", "|---|---|---|---|", *rows])


def commands() -> str:
    """Every command with its arguments and options."""
    root = typer.main.get_command(command_line)
    return "\n".join(_command(root, click.Context(root, info_name="rpdp"), depth=1))


def _command(command: click.Command, context: click.Context, depth: int) -> Iterator[str]:
    if depth > 1:
        yield from (f"{'#' * min(depth, 3)} {context.command_path}", "")
        yield from (_prose(command.help or ""), "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _command(child, click.Context(child, info_name=name, parent=context), depth + 1)
        return
    if any(isinstance(parameter, click.Argument) for parameter in command.params):
        yield from ("```text", " ".join([context.command_path, *command.collect_usage_pieces(context)]), "```", "")
    for parameter in command.params:
        if getattr(parameter, "help", None) and not getattr(parameter, "hidden", False):
            yield from (_parameter(parameter, context), f": {_prose(parameter.help)}", "")  # type: ignore[attr-defined]


def _parameter(parameter: click.Parameter, context: click.Context) -> str:
    if isinstance(parameter, click.Argument):
        return f"`{parameter.make_metavar(context)}`"
    shown = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    assert isinstance(parameter, click.Option)
    facts = [] if parameter.is_flag else [(parameter.metavar or parameter.type.name).lower()]
    if parameter.required:
        facts.append("required")
    if parameter.default not in (None, False, (), "") and not callable(parameter.default):
        facts.append(f"default {parameter.default}")
    return f"{shown} *{', '.join(facts)}*" if facts else shown


def _prose(text: str) -> str:
    """A help text; an example that is a paragraph of its own becomes a block of code."""
    paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(text).replace("\f", "").split("\n\n")]
    return "\n\n".join(_EXAMPLE.sub(r"\1:\n\n```console\n$ \2\n```", paragraph) for paragraph in paragraphs)


def study_keys() -> str:
    """The keys of a study file."""
    return _keys(STUDY)


def silo_keys() -> str:
    """The keys of a silo file."""
    return _keys(SILO)


def _keys(sections: dict[str, type[Any]]) -> str:
    lines = []
    for name, section in sections.items():
        text, _, attributes = inspect.cleandoc(section.__doc__ or "").partition("\n\nAttributes:\n")
        summary = text.partition(": ")[2]
        explained = dict(re.findall(r"^    (\w+): (.+)$", attributes, re.MULTILINE))
        lines += [f"## `[{name}]`", "", _sentence(summary), ""]
        for one in fields(section):
            if one.init:
                meaning = explained.get(one.name) or _sentence(one.metadata["meaning"])
                lines += [f"`{one.name}` *{_kind(one.type)}{_default(one.default)}*", f": {meaning}", ""]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    assert text, "a key without an explanation"
    first = text[:1].upper() if text[:1].isascii() else text[:1]  # δ is not Δ
    return f"{first}{text[1:].removesuffix('.')}."


def _kind(annotation: object) -> str:
    return _TYPES[str(annotation).removesuffix(" | None")]


def _default(default: object) -> str:
    if default is MISSING:
        return ", required"
    if default is None or default == ():
        return ""
    if isinstance(default, tuple):
        return f", default {list(default)}"
    return f", default {str(default).lower() if isinstance(default, bool) else default}"


_PARTS: dict[str, Callable[[], str]] = {
    "python surface": python_surface,
    "exceptions": exceptions,
    "commands": commands,
    "metrics": metrics,
    "study keys": study_keys,
    "silo keys": silo_keys,
}


def _fill(app: Sphinx, page: str, source: list[str]) -> None:
    text = _MARKER.sub(lambda found: _PARTS[found[1]](), source[0])
    source[0] = text.replace("\n\n```\n", "\n```\n")  # doctests need the empty line, readers do not


def _tables(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn the Markdown tables of a docstring into list tables."""
    converted: list[str] = []
    rows: list[list[str]] = []
    for line in [*lines, ""]:
        text = line.strip()
        if text.startswith("|") and text.endswith("|") and len(text) > 1:
            rows.append([cell.strip() for cell in text.strip("|").split("|")])
            continue
        if rows:
            converted += ["", *_list_table([row for row in rows if set("".join(row)) - set("-: ")]), ""]
            rows = []
        converted.append(line)
    lines[:] = converted[:-1]


def _list_table(rows: list[list[str]]) -> list[str]:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        lines += [f"   {'* -' if place == 0 else '  -'} {cell}" for place, cell in enumerate(row)]
    return lines


def _exported(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: Element) -> reference | None:
    """Link a type to the exported name, wherever its module is."""
    name = str(node.get("reftarget", "")).rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in rpdp.__all__ or node["reftarget"] == f"rpdp.{name}":
        return None
    domain = env.domains.python_domain
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", f"rpdp.{name}", node, content)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", _fill)
    app.connect("autodoc-process-docstring", _tables, priority=100)  # before napoleon reads sections
    app.connect("missing-reference", _exported)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
