"""`rpdp-lab central`: centralised rPDP-SGD beside Filter, IDP-SGD and others."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rpdp.cli import options  # noqa: TC001 typer evaluates annotations
from rpdp.cli.output import print_json, say_line


def central(
    task: Annotated[str, typer.Option("--task", help="heart, breast_cancer, mnist or mnist_5k.")] = "breast_cancer",
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds, from 0 on.")] = 5,
    method: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Only this method; may be given several times.")
    ] = None,
    vary_split: Annotated[
        bool, typer.Option("--vary-split", help="Another split into training and test records for each seed.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the steps.")] = False,
    as_json: options.Json = False,
) -> None:
    """Compare rPDP-SGD with Filter, IDP-SGD and others, trained in one place on pooled data.

    Every run is seeded, so it is a simulation. Tasks heart and mnist need their data files (RPDP_DATA).

    Example: `rpdp-lab central --task heart --seeds 5`
    """
    from rpdp_lab.central import compare

    found = compare(task, range(seeds), methods=method or None, vary_split=vary_split, quick=quick)
    if as_json:
        print_json(asdict(found))
    else:
        say_line(found.to_text())
