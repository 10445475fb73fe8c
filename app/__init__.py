"""Coalmine: standing queries with known answers, asked again and again, so that a regression is noticed early."""

__version__ = "0.1.0"
USER_AGENT = f"coalmine/{__version__}"
