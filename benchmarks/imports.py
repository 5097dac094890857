"""Import time: `import rpdp` and `rpdp --help` of this source tree against those of another.

    python benchmarks/imports.py --against ../before/src

Each repeat is a fresh interpreter, this tree and the other one in turn. Without `--against` the reference is an
interpreter that imports what cannot be avoided: nothing for `import rpdp`, typer and rich for `rpdp --help`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks._harness import Benchmark, Work
else:
    from _harness import Benchmark

HERE = Path(__file__).parents[1] / "src"
HELP = "import sys; sys.argv = ['rpdp', '--help']; from rpdp.cli import main; main()"
UNAVOIDABLE = {"import_rpdp": "pass", "rpdp_help": "import typer, rich.console, rich.markdown, typer.rich_utils"}


def run(code: str, source: Path) -> Work:
    """Run code in a fresh interpreter that finds rpdp in this source directory."""
    environment = {**os.environ, "PYTHONPATH": str(source)}

    def work() -> None:
        subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, check=True)

    return work


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--against", type=Path, help="the src directory of another source tree")
    options, others = parser.parse_known_args()
    bench = Benchmark("Imports, each in a fresh interpreter", others)
    for name, code in {"import_rpdp": "import rpdp", "rpdp_help": HELP}.items():
        if options.against is None:
            reference, goal = run(UNAVOIDABLE[name], HERE), None
        else:
            reference, goal = run(code, options.against.resolve(strict=True)), 1.0
        bench.compare(name, run(code, HERE), reference, goal=goal, repeats=31)
    bench.finish()


if __name__ == "__main__":
    main()
