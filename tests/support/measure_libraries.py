"""The measures of other libraries under our names: pytrec_eval (trec_eval), ranx and ir_measures.

They take qrels and runs as dictionaries and sort hits by score. Topics are named by their place, "1" for the first,
because gdeval, one of the programs within ir_measures, reads numbers only.
"""

import atexit
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import ir_measures
import numpy as np
import pytrec_eval

from app.base.values import MAX_GRADE
from app.scoring.measures import Floats
from tests.support.random_rankings import Topic

Qrels = dict[str, dict[str, int]]
Run = dict[str, dict[str, float]]

PYTREC_EVAL: Mapping[str, str] = {"P": "P_", "R": "recall_", "Hit": "success_", "NDCG": "ndcg_cut_"}
RANX: Mapping[str, str] = {
    "P": "precision@",
    "R": "recall@",
    "F1": "f1@",
    "Hit": "hit_rate@",
    "RR": "mrr@",
    "NDCG": "ndcg@",
    "NDCG_exp": "ndcg_burges@",
}
IR_MEASURES: Mapping[str, str] = {
    "P": "P@",
    "R": "R@",
    "Hit": "Success@",
    "RR": "RR@",
    "NDCG": "nDCG@",
    "Judged": "Judged@",
}
GDEVAL = ("NDCG_exp", "ERR")
"""Of ir_measures too, which runs gdeval for them; its figures are rounded and its grades reach to 4."""


def as_qrels(topics: Sequence[Topic]) -> Qrels:
    """Return the judgments, which are all by id."""
    return {
        str(number): {str(judgment.id): judgment.grade for judgment in judgments}
        for number, (judgments, _) in enumerate(topics, start=1)
    }


def as_run(topics: Sequence[Topic]) -> Run:
    """Return the answers with falling scores and without topics that returned nothing, as files of TREC have them."""
    return {
        str(number): {chunk: float(len(ranking) - place) for place, chunk in enumerate(ranking.ids)}
        for number, (_, ranking) in enumerate(topics, start=1)
        if len(ranking)
    }


def by_pytrec_eval(qrels: Qrels, run: Run, names: Sequence[str]) -> Floats:
    """Return scores by measures of ours, (topics, measures); 0 where the run lacks a topic, as by `trec_eval -c`."""
    theirs = {"RR": "recip_rank", "AP": "map", **_cut(PYTREC_EVAL, names)}
    supported = {theirs[name].rsplit("_", 1)[0] if "@" in name else theirs[name] for name in names}
    cuts = ",".join(sorted({name.partition("@")[2] for name in names} - {""}))
    plain = {"recip_rank", "map"}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {one if one in plain else f"{one}.{cuts}" for one in supported})
    found = evaluator.evaluate(run)
    return np.array([[found[topic][theirs[name]] if topic in found else 0.0 for name in names] for topic in qrels])


_RANX = """
import json, sys, ranx
for line in sys.stdin:
    qrels, run, names = json.loads(line)
    qrels, run = ranx.Qrels(qrels), ranx.Run(run)
    scores = ranx.evaluate(qrels, run, names, return_mean=False, make_comparable=True)
    print(json.dumps([scores[name].tolist() for name in names]), flush=True)
"""


@cache
def _ranx() -> tuple[IO[str], IO[str]]:
    """Start ranx once, which takes two seconds to import; it ends with us."""
    process = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-c", _RANX],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.communicate)
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def by_ranx(qrels: Qrels, run: Run, names: Sequence[str]) -> Floats:
    """Return scores by measures of ours, (topics, measures), in the order of the topics' names as text.

    Its formulas as they are written: compiled by numba they give the same, after a minute and a half of compiling.
    Numba decides once, when it is imported, whether to compile: hence a process of its own.
    """
    theirs = {"RR": "mrr", "AP": "map", **_cut(RANX, names)}
    asked, answers = _ranx()
    asked.write(json.dumps([qrels, run, [theirs[name] for name in names]]) + "\n")
    asked.flush()
    by_name = np.array(json.loads(answers.readline())).T
    order = sorted(qrels)
    return np.asarray(by_name[[order.index(topic) for topic in qrels]])


def by_ir_measures(qrels: Qrels, run: Run, names: Sequence[str]) -> Floats:
    """Return scores by measures of ours, (topics, measures). It gives 0 to a topic missing from the run by itself."""
    theirs = {"RR": "RR", "AP": "AP", **_cut(IR_MEASURES, names)}
    measures = {ir_measures.parse_measure(theirs[name]): column for column, name in enumerate(names)}
    rows = {topic: row for row, topic in enumerate(qrels)}
    scores = np.full((len(qrels), len(names)), np.nan)
    for metric in ir_measures.iter_calc(list(measures), qrels, run):
        scores[rows[metric.query_id], measures[metric.measure]] = metric.value
    return scores


def by_gdeval(qrels: Qrels, run: Run, name: str, k: int, folder: Path, *, max_grade: int = MAX_GRADE) -> Floats:
    """Return `NDCG_exp@k` or `ERR@k` by TREC's own program, (topics,), from the copy that ir_measures ships.

    As shipped it knows grades to 4 and prints five digits; `max_grade` is written in, and twelve digits. Topics missing
    from the run and those without relevant chunks are not printed: 0.
    """
    script = (pkgutil.get_data("ir_measures", "bin/gdeval.pl") or b"").decode()
    for shipped, ours in (("$MAX_JUDGMENT = 4;", f"$MAX_JUDGMENT = {max_grade};"), ("%.5f", "%.12f")):
        assert shipped in script
        script = script.replace(shipped, ours)
    (folder / "gdeval.pl").write_text(script, encoding="utf-8")
    lines = [f"{topic} 0 {chunk} {grade}" for topic, grades in qrels.items() for chunk, grade in grades.items()]
    (folder / "qrels").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    lines = [f"{topic} Q0 {chunk} 0 {score} us" for topic, hits in run.items() for chunk, score in hits.items()]
    (folder / "run").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - our own words
        ["perl", "gdeval.pl", "qrels", "run", str(k)],  # noqa: S607 - wherever it is
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = {cells[1]: cells for cells in (line.split(",") for line in done.stdout.splitlines()[1:])}
    column = {"NDCG_exp": 2, "ERR": 3}[name]
    return np.array([float(found[topic][column]) if topic in found else 0.0 for topic in qrels])


def _cut(spellings: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the library's names of measures with a cut-off."""
    parts = [(name, *name.split("@")) for name in names if "@" in name]
    return {name: f"{spellings[measure]}{k}" for name, measure, k in parts}
