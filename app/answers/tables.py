"""Tables of generated answers: answers, ratings of judges and their daily use, labels and calibrations, feedback."""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, LargeBinary, Table, Text, UniqueConstraint

from app.base.db.rows import Id, id_column, metadata

answer_texts = Table(
    "answer_texts",
    metadata,
    id_column(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("text", Text, nullable=False),
)

# What was answered to a canary and said of it, from `first_run` until `last_run` (NULL: it still holds).
answers = Table(
    "answers",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("canary_id", Id, ForeignKey("canaries.id"), nullable=False),
    Column("canary_version_id", Id, nullable=False),
    Column("ranking_id", Id, nullable=False),  # whose texts it was made of
    Column("text_id", Id, ForeignKey("answer_texts.id")),  # NULL = there was none
    Column("judge_id", Id, ForeignKey("definitions.id")),  # NULL = no judge was asked
    Column("body", Text, nullable=False),  # JSON: outcome, lexical grounding, ratings
    Column("first_run", Id, nullable=False),
    Column("last_run", Id),
    Index("ix_answers_open", "check_id", "canary_id", "last_run"),
    Index("ix_answers_ranking_id", "ranking_id"),
    Index("ix_answers_text_id", "text_id"),
)

# What the answers of a run come to.
run_answers = Table(
    "run_answers",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("body", Text),  # JSON: how many were asked, answered and judged, by outcome; NULL = not ended
    Column("finished_at", BigInteger),
)

# The answers of a run until they are judged, part by part as they come.
staged_answers = Table(
    "staged_answers",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),  # the first position of the canaries it is about
    Column("body", LargeBinary, nullable=False),
)

# What a judge said of one answer to one question: an unchanged answer is asked about once.
ratings = Table(
    "ratings",
    metadata,
    Column("key", Text, primary_key=True),  # hash of prompt version, model and texts, then of the endpoint
    Column("judge_id", Id, ForeignKey("definitions.id"), primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Column("used_at", BigInteger, nullable=False, index=True),
)

judge_days = Table(
    "judge_days",
    metadata,
    Column("judge_id", Id, ForeignKey("definitions.id"), primary_key=True, autoincrement=False),
    Column("day", Integer, primary_key=True, autoincrement=False),  # days since 1970, UTC
    Column("calls", BigInteger, nullable=False),
    Column("cached", BigInteger, nullable=False),  # answers that were not asked about again
    Column("tokens", BigInteger, nullable=False),
    Column("cost", Float(53), nullable=False),
    Column("outcomes", Text, nullable=False),  # JSON: calls by outcome
)

# The answers drawn for people to label, and the verdicts on those that were not drawn; frozen.
answer_draws = Table(
    "answer_draws",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True, autoincrement=False),
    Column("judge_id", Id, ForeignKey("definitions.id"), nullable=False, index=True),
    Column("question", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("wording", Text, nullable=False),  # version of the prompt
    Column("endpoint", Text),  # hash of what the judge asked; NULL = drawn by a release that did not keep it
    Column("rest", Text, nullable=False),  # JSON list: the judge's verdicts on the answers that were not drawn
    Column("rest_checks", Text),  # JSON list: whose answers these are; NULL = drawn by a release that did not keep it
    Column("at", BigInteger, nullable=False),
)

# What the judge said of an answer that people label: when it was drawn, and once it was padded.
drawn_verdicts = Table(
    "drawn_verdicts",
    metadata,
    Column("item_id", Id, ForeignKey("task_items.id"), primary_key=True, autoincrement=False),
    Column("task_id", Id, ForeignKey("tasks.id"), nullable=False, index=True),
    Column("check_id", Id),  # whose answer it is; NULL = drawn by a release that did not keep it
    Column("value", Float(53), nullable=False),
    Column("padded", Float(53)),  # NULL = undefined, or not asked
    Column("padded_outcome", Text),  # NULL = it is not asked about the padded answer
)

# How far the labels of a task confirm the judge whose answers were drawn; computed anew when they change.
calibrations = Table(
    "calibrations",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True, autoincrement=False),
    Column("judge_id", Id, ForeignKey("definitions.id"), nullable=False, index=True),
    Column("measure", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("wording", Text, nullable=False),
    Column("labels", Integer, nullable=False),
    Column("calibrated", Integer, nullable=False),  # 1 = a rule on the measure may be critical
    Column("body", Text, nullable=False),  # JSON: rate, agreement, length bias
    Column("at", BigInteger, nullable=False),
)

# What users said of answers, by the hash of the answer: neither its text nor who said it.
feedback = Table(
    "feedback",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("event_id", Text, nullable=False),
    Column("canary_id", Id, ForeignKey("canaries.id"), nullable=False),
    Column("answer_hash", LargeBinary, nullable=False),  # as of `answer_texts`
    Column("kind", Text, nullable=False),
    Column("positive", Integer, nullable=False),
    Column("received_at", BigInteger, nullable=False, index=True),
    UniqueConstraint("check_id", "event_id"),  # the same event sent again counts once
    Index("ix_feedback_canary", "check_id", "canary_id"),
)
