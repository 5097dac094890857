"""`python -m rpdp_lab.central`."""

from rpdp_lab.central.command import main

if __name__ == "__main__":
    raise SystemExit(main())
