"""Tables of annotation: tasks with items, annotations and decisions, pooled recall, corpora of random negatives."""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, Table, Text, UniqueConstraint, text

from app.base.db.rows import Id, id_column, metadata, partial_index

tasks = Table(
    "tasks",
    metadata,
    id_column(),
    Column("slug", Text, nullable=False),
    Column("suite_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("body", Text, nullable=False),  # JSON of the task's document; frozen once it is pooled
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("pool_requested_at", BigInteger),  # NULL = nobody has asked the retrievers yet
    Column("pooled_at", BigInteger),  # NULL = some canaries have no items yet
    Column("planting", Text),  # why fewer texts were planted than asked for, "" = all were; NULL = none were yet
    Column("archived_at", BigInteger),
    # The name of an archived task is free again.
    partial_index("uq_tasks_slug", "slug", unique=True, where="archived_at is null"),
)

# The canaries of a task, frozen when the pool is asked for.
task_canaries = Table(
    "task_canaries",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True, autoincrement=False),
    Column("canary_id", Id, ForeignKey("canaries.id"), primary_key=True, autoincrement=False),
    Column("canary_version_id", Id, ForeignKey("canary_versions.id"), nullable=False),
    Column("sizes", Text),  # JSON list: size of each stratum; NULL = not pooled yet
    Column("failure", Text),  # why a retriever could not be asked, when it was tried last
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("shared_ids", Text),  # JSON list: ids of different ranked texts, drawn or not; NULL = unknown
)

task_items = Table(
    "task_items",
    metadata,
    id_column(),
    Column("task_id", Id, ForeignKey("tasks.id"), nullable=False),
    Column("canary_id", Id, ForeignKey("canaries.id")),  # NULL = a pair of a shadow, whose query is no canary's
    Column("token", Text, nullable=False),  # names it to annotators; ids would tell the order of strata
    Column("key", Text, nullable=False),  # of the normalised text
    Column("text", Text, nullable=False),
    Column("document", Text),
    Column("stratum", Integer, nullable=False),
    Column("ranks", Text, nullable=False),  # JSON: best rank by retriever
    Column("chunks", Text, nullable=False),  # JSON list of [retriever, chunk id], "" for a corpus
    Column("overlap", Integer, nullable=False),  # 1 = for every annotator
    # 1 = it was not drawn for them, but chosen since one person alone called it relevant
    Column("graded_again", Integer, nullable=False, server_default=text("0")),
    Column("known_grade", Integer),  # of a planted text; NULL = an item of the pool
    UniqueConstraint("task_id", "token"),
    Index("ix_task_items_canary", "task_id", "canary_id"),
)

# What annotators see beside an item that is a generated answer, which is the item's text.
answer_items = Table(
    "answer_items",
    metadata,
    Column("item_id", Id, ForeignKey("task_items.id"), primary_key=True, autoincrement=False),
    Column("query", Text, nullable=False),
    Column("expected", Text),  # the canary's expected answer; NULL = it has none
    Column("contexts", Text, nullable=False),  # JSON list: the chunks that the answer was made of
    Column("asked", Text),  # JSON: vars and history of the query; NULL = drawn by an older release
)

# What annotators see of an item that is a pair of answers to one query, and which side is the candidate's.
pair_items = Table(
    "pair_items",
    metadata,
    Column("item_id", Id, ForeignKey("task_items.id"), primary_key=True, autoincrement=False),
    Column("query", Text, nullable=False),  # empty once the task is archived, as the texts
    Column("left_texts", Text, nullable=False),  # JSON list
    Column("right_texts", Text, nullable=False),
    Column("candidate_right", Integer, nullable=False),
)

# All that annotators ever said; what holds was not withdrawn.
annotations = Table(
    "annotations",
    metadata,
    id_column(),
    Column("task_id", Id, ForeignKey("tasks.id"), nullable=False),
    Column("item_id", Id, ForeignKey("task_items.id"), nullable=False),
    Column("annotator", Text, nullable=False),
    Column("by_judge", Integer, nullable=False, server_default=text("0")),  # 1 = a machine, never in the consensus
    Column("grade", Integer),  # NULL = skipped
    Column("seconds", Float(53)),  # how long it took
    Column("at", BigInteger, nullable=False),
    Column("withdrawn_at", BigInteger),  # NULL = in force
    Index("ix_annotations_annotator", "task_id", "annotator", "id"),
    # One per item and annotator holds, however often and from how many tabs it is sent.
    partial_index("uq_annotations_in_force", "item_id", "annotator", unique=True, where="withdrawn_at is null"),
)

# What annotators have in hand: the item that each was handed last, and the one to prefetch.
held_items = Table(
    "held_items",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True, autoincrement=False),
    Column("annotator", Text, primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False),  # 0 = the item, 1 = the one after it
    # No foreign key: with one, handing out and an import of annotations would wait for items that the other has locked.
    Column("item_id", Id, nullable=False, index=True),
    Column("until", BigInteger, nullable=False),  # then others are handed it too
)

adjudications = Table(
    "adjudications",
    metadata,
    id_column(),
    Column("task_id", Id, ForeignKey("tasks.id"), nullable=False, index=True),
    Column("item_id", Id, ForeignKey("task_items.id"), nullable=False),
    Column("grade", Integer, nullable=False),
    Column("decided_by", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("withdrawn_at", BigInteger),
    partial_index("uq_adjudications_in_force", "item_id", unique=True, where="withdrawn_at is null"),
)

# What the annotations of a task say of the recall of its retrievers, computed once they change.
pooled_recalls = Table(
    "pooled_recalls",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True, autoincrement=False),
    Column("retriever", Text, primary_key=True),
    Column("k", Integer, primary_key=True, autoincrement=False),
    Column("queries", Integer, nullable=False),  # whose chunks are all decided
    Column("found", Integer, nullable=False),
    Column("relevant", Float(53)),  # estimated; NULL = unknown
    Column("value", Float(53)),
    Column("low", Float(53)),
    Column("high", Float(53)),
    Column("frame", Text, nullable=False),  # what it is a share of
    Column("rest_share", Float(53)),  # of `relevant`, by texts that no retriever ranked; NULL = an older release
    Column("uncorrected", Float(53)),  # with every grade taken as right; NULL = as `value`
    Column("assumes", Text, nullable=False, server_default=text("''")),  # of the grades, in words
    Column("at", BigInteger, nullable=False),
)

corpora = Table(
    "corpora",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

corpus_texts = Table(
    "corpus_texts",
    metadata,
    id_column(),
    Column("corpus_id", Id, ForeignKey("corpora.id"), nullable=False),
    Column("key", Text, nullable=False),  # of the normalised text, as that of items
    Column("chunk", Text, nullable=False),  # its id in the corpus
    Column("text", Text, nullable=False),
    UniqueConstraint("corpus_id", "key"),  # the same text twice is one
)
