"""Coalmine: standing queries with known answers, asked again and again, so that a regression is noticed early."""

from importlib.metadata import version

__version__ = version("coalmine")
USER_AGENT = f"coalmine/{__version__}"
