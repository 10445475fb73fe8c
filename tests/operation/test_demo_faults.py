"""The faults as pure functions: what each breaks, how much of it, and that it is the same every time."""

from collections import Counter
from itertools import pairwise

import pytest

from app.demo.corpus import Chunk, read_corpus, terms
from app.demo.faults import (
    SIZES,
    BadFaultError,
    Fault,
    FaultKind,
    damage_chunks,
    delay_seconds,
    distort_hits,
    fails,
    make_fault,
)
from app.demo.retriever import Retriever
from tests.support.demo_suite import canaries, found

CORPUS = read_corpus()
ASKING = [canary for canary in canaries() if not canary.negative]


def coverage(chunks: tuple[Chunk, ...]) -> float:
    """Return the share of canaries that find something expected in the top 5."""
    retriever = Retriever(chunks)
    answers = [(canary, [hit.chunk for hit in retriever.search(canary.query, 5)]) for canary in ASKING]
    return sum(any(found(answer, canary)) for canary, answer in answers) / len(ASKING)


def broken(kind: str, size: float | None = None, topic: str | None = None) -> tuple[Chunk, ...]:
    """Return the bundled corpus under a fault."""
    return damage_chunks(CORPUS, make_fault(kind, size, topic, CORPUS))


def test_bigger_losses_contain_smaller_ones() -> None:
    kept = [{chunk.id for chunk in broken("loss", share / 10)} for share in range(11)]
    assert [len(ids) for ids in kept] == [len(CORPUS) - round(share / 10 * len(CORPUS)) for share in range(11)]
    assert all(smaller > bigger for smaller, bigger in pairwise(kept))


def test_losses_lower_coverage_with_their_size() -> None:
    assert coverage(CORPUS) == 1
    assert coverage(broken("loss", 0.1)) < 0.95
    assert coverage(broken("loss", 0.3)) < 0.8
    assert coverage(broken("loss", 0.5)) < 0.6


def test_the_topic_fault_takes_the_largest_topic_and_nothing_else() -> None:
    largest, passages = Counter(chunk.topic for chunk in CORPUS).most_common(1)[0]
    left = broken("topic")
    assert len(left) == len(CORPUS) - passages
    assert set(CORPUS) - set(left) == {chunk for chunk in CORPUS if chunk.topic == largest}


def test_the_topic_fault_takes_the_topic_it_is_told() -> None:
    assert set(CORPUS) - set(broken("topic", topic="billing")) == {each for each in CORPUS if each.topic == "billing"}


def test_duplicates_flood_a_share_with_near_copies_that_crowd_out_their_originals() -> None:
    flooded = broken("duplicates", 0.2)
    copies = set(flooded) - set(CORPUS)
    assert set(CORPUS) < set(flooded)
    assert len(copies) == 5 * round(0.2 * len(CORPUS))
    assert len({chunk.id for chunk in flooded}) == len(flooded)
    for copy in copies:
        original = next(chunk for chunk in CORPUS if copy.id.startswith(f"{chunk.id}-copy-"))
        assert copy.text != original.text
        assert (terms(copy.text), copy.document) == (terms(original.text), original.document)
    assert 0.6 < coverage(flooded) < 0.9


def test_rechunking_renames_everything_cuts_anew_and_loses_no_word() -> None:
    anew = broken("rechunk")
    assert not {chunk.id for chunk in anew} & {chunk.id for chunk in CORPUS}
    assert len({chunk.id for chunk in anew}) == len(anew)
    assert len({chunk.text for chunk in anew} - {chunk.text for chunk in CORPUS}) > len(anew) / 2
    for document in {chunk.document for chunk in CORPUS}:
        before = " ".join(chunk.text for chunk in CORPUS if chunk.document == document)
        assert " ".join(chunk.text for chunk in anew if chunk.document == document) == before


def test_rechunking_leaves_most_of_every_passage_in_one_piece() -> None:
    anew = broken("rechunk")

    def grams(text: str) -> set[tuple[str, ...]]:
        words = text.split()
        return set(zip(words, words[1:], words[2:], strict=False))

    pieces = [grams(chunk.text) for chunk in anew]
    for chunk in CORPUS:
        wanted = grams(chunk.text)
        assert max(len(wanted & piece) for piece in pieces) >= 0.5 * len(wanted), chunk.id


def test_truncation_cuts_answers_and_keeps_their_head() -> None:
    hits = Retriever(CORPUS).search("data retention policy", 10)
    assert distort_hits(hits, make_fault("truncate", None, None, CORPUS)) == hits[:2]
    assert distort_hits(hits, make_fault("truncate", 0, None, CORPUS)) == []
    assert distort_hits(hits, make_fault("truncate", 500, None, CORPUS)) == hits


def test_errors_hit_the_share_asked_for_in_a_fixed_sequence_without_rhythm() -> None:
    fault = make_fault("errors", 0.5, None, CORPUS)
    sequence = [fails(fault, number) for number in range(2000)]
    assert sequence == [fails(fault, number) for number in range(2000)]
    assert sum(sequence) == pytest.approx(1000, abs=100)
    assert sum(first and second for first, second in pairwise(sequence)) == pytest.approx(500, abs=100)
    assert all(fails(make_fault("errors", 1, None, CORPUS), number) for number in range(100))
    assert not any(fails(make_fault("errors", 0, None, CORPUS), number) for number in range(100))


def test_latency_is_its_size_in_seconds() -> None:
    assert delay_seconds(make_fault("latency", 0.25, None, CORPUS)) == 0.25


@pytest.mark.parametrize(
    "kind", [FaultKind.NONE, FaultKind.TRUNCATE, FaultKind.RESCALE, FaultKind.LATENCY, FaultKind.ERRORS]
)
def test_faults_of_answers_leave_the_index_alone(kind: FaultKind) -> None:
    assert broken(kind) == CORPUS


@pytest.mark.parametrize(
    "kind", [FaultKind.NONE, FaultKind.LOSS, FaultKind.TOPIC, FaultKind.DUPLICATES, FaultKind.RECHUNK]
)
def test_faults_of_the_index_leave_answers_alone(kind: FaultKind) -> None:
    fault = make_fault(kind, None, None, CORPUS)
    hits = Retriever(CORPUS).search("data retention policy", 10)
    assert distort_hits(hits, fault) == hits
    assert delay_seconds(fault) == 0
    assert not any(fails(fault, number) for number in range(100))


def test_every_fault_breaks_the_same_every_time_and_any_part_of_a_corpus() -> None:
    for kind in list(FaultKind):
        fault = make_fault(kind, None, None, CORPUS)
        assert damage_chunks(CORPUS, fault) == damage_chunks(CORPUS, fault), kind
        assert damage_chunks((), fault) == (), kind
        assert (fault.size is None) is (kind not in SIZES), kind


def test_sizes_of_kinds_without_one_are_dropped() -> None:
    assert make_fault("none", 0.5, "billing", CORPUS) == Fault()
    assert make_fault("rechunk", 7, None, CORPUS) == Fault(kind=FaultKind.RECHUNK)


def test_a_corpus_without_topics_cannot_lose_one() -> None:
    with pytest.raises(BadFaultError, match="no topics"):
        make_fault("topic", None, None, [Chunk(id="a", document="a", title="", topic="", text="x")])
