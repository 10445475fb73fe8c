"""Suite power: the smallest damage that its canaries would detect."""

from typing import Final

from app.catalog.domain.suites import FEWEST_PER_TOPIC, TARGET_FRACTION, Reach, canaries_for
from app.diagnosis.quality.domain.evidence import Mark, Section, unknown

NAME: Final = "suite"


def suite_reach(reach: Reach) -> Section:
    """Section on the smallest detected damage; good for 5 % of an index, and three canaries or more per topic."""
    fraction, thin = reach.smallest_fraction, reach.thin_topics
    numbers = {
        "expecting_canaries": reach.canaries,
        "smallest_fraction": fraction,
        "topics": len(reach.topics),
        "thin_topics": len(thin),
    }
    if fraction is None:
        why = f"{reach.canaries} canaries expect something; fewer than {FEWEST_PER_TOPIC} see no damage for sure"
        return unknown(NAME, why, **numbers)
    good = fraction <= TARGET_FRACTION and not thin
    note = f"damage to {100 * fraction:.2g}% of the index is detected in 95 of 100 cases"
    if reach.topics:
        note += f"; {len(thin)} of {len(reach.topics)} topics have fewer than {FEWEST_PER_TOPIC} canaries"
    advice = (
        f"Add canaries: {canaries_for(TARGET_FRACTION)} see damage to {TARGET_FRACTION:.0%}, 3 are few for a topic."
    )
    return Section(
        name=NAME,
        mark=Mark.GOOD if good else Mark.REVIEW,
        reason=note,
        numbers=numbers,
        groups={f"{topic.kind} {topic.name}": {"canaries": topic.canaries} for topic in thin[:20]},
        advice=None if good else advice,
    )
