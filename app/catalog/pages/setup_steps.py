"""The steps from nothing to alerts, as pages show them until a check is made: retriever, canaries, hook, check."""

from dataclasses import dataclass
from urllib.parse import urlencode

from app.base.db.engine import Store
from app.catalog.domain.suite_power import size_advice
from app.catalog.service import definitions
from app.records.service import suite_views


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStep:
    """What is made in a step, and where."""

    name: str
    text: str
    """What it is for, as a sentence without full stop."""
    link: str
    button: tuple[str, str]
    """What a button that begins it says, and where that leads."""
    done: bool = False


def list_setup_steps(store: Store, *, suite: str = "", retriever: str = "") -> tuple[SetupStep, ...]:
    """List the steps in their order, those done marked; the check, which is of `suite` and `retriever`, never is.

    The hook comes before the check, which is saved with its hooks.
    """
    chosen = {name: slug for name, slug in (("suite", suite), ("retriever", retriever)) if slug}
    new_check = "/new-check" + (f"?{urlencode(chosen)}" if chosen else "")
    return (
        SetupStep(
            name="A retriever",
            text="the search API that is watched",
            link="/new-retriever",
            button=("Connect a retriever", "/new-retriever"),
            done=bool(definitions.list_all(store, "retriever")),
        ),
        SetupStep(
            name="A suite of canaries",
            text=f"queries with known expected chunks, typed or imported. {size_advice()}",
            link="/suites",
            button=("Import queries and judgments", "/import"),
            done=any(one.canaries for one in suite_views.list_suites(store)),
        ),
        SetupStep(
            name="A hook",
            text="who is notified of an alert: webhook, Slack, PagerDuty, email. The form of a check lists the hooks",
            link="/new-hook",
            button=("New hook", "/new-hook"),
            done=bool(definitions.list_all(store, "hook")),
        ),
        SetupStep(
            name="A check",
            text="sends the queries to the retriever on a schedule and opens an alert when the answers get worse",
            link=new_check,
            button=("New check", new_check),
        ),
    )
