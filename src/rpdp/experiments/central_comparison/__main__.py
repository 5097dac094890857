"""`python -m rpdp.experiments.central_comparison`."""

from rpdp.experiments.central_comparison.command import main

if __name__ == "__main__":
    raise SystemExit(main())
