"""Text to index terms: lower case, a stop list and a light English stemmer; and where a text may be cut.

The same analysis serves passages and queries. No dictionary, no dependency, no state.
"""

import re
import unicodedata

_TERM = re.compile(r"[^\W_]+")
_CLAUSE_END = re.compile(r"(?<=[.!?;:])\s+")
_VOWEL = re.compile(r"[aeiouy]")
_SHORTEST_STEM = 3

# Words that say how a question is asked rather than what it is about, and the letters apostrophes leave behind.
_STOPWORDS = """
a about after again all also although am an and another any anybody anyone anything are as ask at be because been
before being between both but by can cannot could d did do does doing done don during each either else ever every
everyone everything few for from further get gets getting give given go goes going good got had happen happened
happens has have having he her here his how i if in instead into is it its itself just know let like ll m make many
may me might more most much must my myself need needed needs neither no nor not now of off on once one only or
other our ours out over own please possible put re s same see shall she should show so some somebody someone
something still such t take tell than that the their them themselves then there these they thing things this those
through to too under until up us use used uses using ve very want was way ways we well were what whatever when where
whether which while who whom whose why will with without won would yet you your yours
"""
STOPWORDS = frozenset(_STOPWORDS.split())


def terms(text: str) -> list[str]:
    """Return the index terms of a text in order, repeats included."""
    words = _TERM.findall(unicodedata.normalize("NFKC", text).casefold())
    return [stem(word) for word in words if word not in STOPWORDS and (len(word) > 1 or word.isdigit())]


def stem(word: str) -> str:
    """Strip plural, participle and the commonest noun endings, so that `configure` meets `configuration`.

    In the manner of Porter (1980), cut down to the endings technical English is made of; words with digits stay.
    """
    if len(word) <= _SHORTEST_STEM or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > _SHORTEST_STEM + 1:
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    word = _without_participle(word)
    for ending, shortest in (("ally", 4), ("ation", 4), ("ate", 4), ("at", 5), ("ion", 4), ("ment", 3), ("ly", 4)):
        if word.endswith(ending) and len(word) - len(ending) >= shortest:
            word = word.removesuffix(ending)
            break
    return word.removesuffix("e") if len(word) > _SHORTEST_STEM else word


def _without_participle(word: str) -> str:
    for ending in ("ing", "ed"):
        stump = word.removesuffix(ending)
        if stump != word and len(stump) >= _SHORTEST_STEM and _VOWEL.search(stump) and not word.endswith("eed"):
            doubled = stump[-1] == stump[-2] and stump[-1] not in "aeioulsz"
            return stump[:-1] if doubled else stump
    return word


def cut(text: str, characters: int) -> list[str]:
    """Cut a text into pieces of at most `characters`, after a sentence or clause where possible, else after a word.

    A single word longer than that stays whole. Nothing is lost or repeated but the white space at the cuts.
    """
    pieces: list[str] = []
    for clause in _CLAUSE_END.split(text.strip()):
        units = [clause] if len(clause) <= characters else clause.split()
        for unit in units:
            if pieces and len(pieces[-1]) + 1 + len(unit) <= characters:
                pieces[-1] += " " + unit
            else:
                pieces.append(unit)
    return [piece for piece in pieces if piece]


def near_copy(text: str, variant: int) -> str:
    """Return the text without one of its function words, which `variant` chooses: other bytes, the same terms."""
    words = text.split(" ")
    spare = [place for place, word in enumerate(words) if word in STOPWORDS]
    if not spare:
        return text
    left_out = spare[variant % len(spare)]
    return " ".join(words[:left_out] + words[left_out + 1 :])
