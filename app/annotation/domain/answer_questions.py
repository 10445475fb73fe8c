"""Questions that people answer with yes or no about a generated answer, by the measure that their labels confirm."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

LABELS: Final = ("No", "Yes")
"""Names of the grades 0 and 1 of an answer."""
PREFERENCES: Final = ("Left is better", "No difference", "Right is better")
"""Names of the grades 0 to 2 of a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelQuestion:
    """A question to people, and what they see beside query and answer."""

    text: str
    contexts: bool = False
    expected: bool = False


_SUPPORTED: Final = LabelQuestion(text="Are all claims of the answer supported by the chunks?", contexts=True)
LABEL_QUESTIONS: Final = MappingProxyType(
    {
        "faithful": _SUPPORTED,
        "faithfulness": _SUPPORTED,
        "answer_relevance": LabelQuestion(text="Does everything in the answer help to answer the query?"),
        "correctness": LabelQuestion(
            text="Does the answer say everything that the expected answer says, and nothing against it?", expected=True
        ),
    }
)
