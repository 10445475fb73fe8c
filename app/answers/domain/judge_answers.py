"""Readers of what a judge replies: YES or NO, and a list of claims in JSON."""

import json
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

MOST_CLAIMS: Final = 500
"""A reply with more claims is unparsable: the judge repeats itself."""
CLAIMS_SCHEMA: Final = MappingProxyType[str, Any](
    {
        "type": "object",
        "properties": {
            "claims": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"claim": {"type": "string"}, "supported": {"type": "boolean"}},
                    "required": ["claim", "supported"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["claims"],
        "additionalProperties": False,
    }
)
"""JSON Schema of a reply about claims, sent along where the endpoint takes one; `read_claims` wants no less."""

_VERDICT = re.compile(r"^\W*(yes|no)\b", re.IGNORECASE)
_CODE_BLOCK: Final = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim as the judge words it, and whether it is supported."""

    text: str
    supported: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Claims that a judge lists; none at all means that the answer declines to say anything."""

    claims: tuple[Claim, ...]

    @property
    def declined(self) -> bool:
        """Whether there is no claim, as in "I do not know"."""
        return not self.claims

    @property
    def supported(self) -> int:
        """Number of supported claims."""
        return sum(claim.supported for claim in self.claims)

    @property
    def share(self) -> float | None:
        """Supported claims / claims, in [0, 1]; None = declined, which is neither faithful nor unfaithful."""
        return self.supported / len(self.claims) if self.claims else None


def read_verdict(reply: str) -> bool | None:
    """Verdict of a reply to a YES/NO question: the word that it begins with; None = unparsable.

    Only the beginning counts: "NO, though YES would be near" is a no. Signs before it (`**`, quotes) do not matter.
    """
    match = _VERDICT.match(reply)
    return match[1].lower() == "yes" if match else None


def read_claims(reply: str) -> Claims | None:
    """Claims of a reply in the form of `CLAIMS_SCHEMA`, which may stand in a Markdown code block; None = unparsable.

    Unparsable is also what is cut off, a `supported` that is no boolean, an empty claim, more than `MOST_CLAIMS`:
    a share of the claims that happened to be readable would be a different measure.
    """
    try:
        value = json.loads(unwrap_reply(reply))
    except (ValueError, RecursionError):
        return None
    listed = value.get("claims") if isinstance(value, dict) else None
    if not isinstance(listed, list) or len(listed) > MOST_CLAIMS:
        return None
    claims = [claim for each in listed if (claim := _read_claim(each)) is not None]
    return Claims(claims=tuple(claims)) if len(claims) == len(listed) else None


def unwrap_reply(reply: str) -> str:
    """Return the reply without the Markdown code block around it, if there is one."""
    text = reply.strip()
    first, _, rest = text.partition("\n")
    if first.startswith(_CODE_BLOCK) and rest.endswith(_CODE_BLOCK):
        return rest.removesuffix(_CODE_BLOCK)
    return text


def _read_claim(value: object) -> Claim | None:
    if not isinstance(value, dict):
        return None
    text, supported = value.get("claim"), value.get("supported")
    if not isinstance(text, str) or not text.strip() or not isinstance(supported, bool):
        return None
    return Claim(text=text.strip(), supported=supported)
