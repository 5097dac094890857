"""`rpdp report`: rebuild the HTML report of a run or a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.checks import require_choice
from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.output import print_json, say_line
from rpdp.errors import InputError

if TYPE_CHECKING:
    from markupsafe import Markup


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The directory of a run or a comparison.")],
    edition: Annotated[
        str, typer.Option("--edition", help="silo: everything; it stays with the silos. share: what may be published.")
    ] = "silo",
    audit: Annotated[
        Path | None,
        typer.Option("--audit", help="With edition silo: an audit.json of `rpdp audit`, to add as a section."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; by default in the directory itself.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Rebuild the report of a finished run or comparison, as one HTML file that opens offline.

    Example: `rpdp report runs/breast_cancer/rpdp-1 --edition share --out to-show.html`
    """
    require_choice("--edition", edition, ("silo", "share"))
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory")
    if out is not None and out.suffix != ".html":
        raise InputError(f"--out {out}: the name of a report must end in .html")

    from rpdp.studies.run_reports import EDITIONS, rebuild_report

    kind = next(known for known in EDITIONS if known == edition)
    if audit is not None and kind != "silo":
        raise InputError("--audit goes with --edition silo: an audit shows how many records a silo has")
    path = rebuild_report(directory, kind, out or directory / EDITIONS[kind], _audit_section(audit))
    if as_json:
        print_json({"report": str(path), "edition": edition})
    else:
        say_line(f"report: {path}")


def _audit_section(path: Path | None) -> list[Markup]:
    if path is None:
        return []
    from rpdp.audit import read_audit
    from rpdp.audit.audit_page import canary_section

    return [canary_section(read_audit(path), heading="Audit with canaries")]
