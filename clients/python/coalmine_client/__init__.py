"""Canary queries for retrieval, from Python: `check` in a notebook or script, and a plugin for pytest.

The measuring is done by the command `coalmine check`; this package serves a callable to it and reads what it found. It
needs the standard library alone, and shares no name with the service, so that both may be installed beside any `app`.
"""

from coalmine_client.checks import CheckError, Report, check
from coalmine_client.retrievers import as_retriever

__all__ = ["CheckError", "Report", "as_retriever", "check"]
