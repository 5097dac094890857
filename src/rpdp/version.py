"""The release of rpdp; the one place that states it."""

__version__ = "0.2.0.dev0"
