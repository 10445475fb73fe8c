"""Generated answers without a model: an answerer that copies sentences, and a judge with stated errors.

The answerer errs on purpose: to every eighth question, by a hash of it, it tells another number than its passages. The
judge looks whether each sentence of the answer stands in the context, and then errs as its figures say, by a hash of
the answer, so that the same answer always gets the same verdict. Both are for looking at pages; they judge nothing.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from app.demo.corpus import terms

SENSITIVITY: Final = 0.9
"""Of supported answers, those that the judge says YES of."""
SPECIFICITY: Final = 0.8
"""Of others, those that it says NO of."""
WRONG_EVERY: Final = 8
"""One question in so many is answered with another number, where the answer has one."""
DECLINED: Final = "I do not know."

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|[\r\n]+")
_NUMBER = re.compile(r"\d+")
_FENCED = re.compile(r"<<<BEGIN (\w+) ([a-z ]+?)(?: \d+)?>>>\n(.*?)\n<<<END \1 ", re.DOTALL)
_MOST_SENTENCES: Final = 2
_ENOUGH: Final = 0.5
"""Share of a claim's words that an answer has to have in order to make it."""


def answer_question(question: str, passages: Sequence[str]) -> str:
    """Return the sentences of the passages that share most words with a question; a few with another number."""
    wanted = set(terms(question))
    sentences = [sentence for passage in passages for sentence in split_sentences(passage)]
    ranked = sorted(dict.fromkeys(sentences), key=lambda one: -len(wanted & set(terms(one))))
    best = [one for one in ranked[:_MOST_SENTENCES] if wanted & set(terms(one))]
    if not best:
        return DECLINED
    answer = " ".join(best)
    return _NUMBER.sub(lambda found: str(int(found[0]) + 3), answer) if _hash(question) % WRONG_EVERY == 0 else answer


def judge_answer(prompt: str) -> str:
    """Return the reply to a prompt of a judge: YES or NO, or the JSON of claims where it asks for JSON."""
    parts: dict[str, list[str]] = {}
    for _, name, text in _FENCED.findall(prompt):
        parts.setdefault(name, []).append(text)
    answer = " ".join(parts.get("answer", ()))
    claims = _claims(parts, answer)
    if "Reply with JSON" in prompt:
        listed = [{"claim": text, "supported": _err(text, is_right=right)} for text, right in claims.items()]
        return json.dumps({"claims": listed})
    return "YES" if _err(answer, is_right=all(claims.values())) else "NO"


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [one.strip() for one in _SENTENCE_END.split(text) if one.strip()]


def _claims(parts: Mapping[str, Sequence[str]], answer: str) -> dict[str, bool]:
    """Return what is claimed, and whether it holds: in the expected answer, by the context, or for the query."""
    if "expected answer" in parts:
        said = set(terms(answer))
        return {one: _share(one, said) >= _ENOUGH for one in split_sentences(" ".join(parts["expected answer"]))}
    claims = [] if answer == DECLINED else split_sentences(answer)
    if "context" in parts:
        context = _normalised(" ".join(parts["context"]))
        return {one: _normalised(one) in context for one in claims}
    wanted = set(terms(" ".join(parts.get("query", ()))))
    return {one: bool(wanted & set(terms(one))) for one in claims}


def _share(claim: str, said: set[str]) -> float:
    words = set(terms(claim))
    return len(words & said) / len(words) if words else 1.0


def _err(text: str, *, is_right: bool) -> bool:
    """Return a verdict with the errors of the judge: the same for the same text."""
    drawn = _hash(f"judge:{text}") / 2**32
    return drawn < (SENSITIVITY if is_right else 1 - SPECIFICITY)


def _normalised(text: str) -> str:
    return " ".join(text.split()).casefold()


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
