"""Alembic's entry: migrations run on the connection that app.base.db.files hands over, in one transaction.

`metadata` has the tables of the subjects that were imported. Migrating does not read it; a test compares all of them
with what the migrations make.
"""

from alembic import context

from app.base.db.files import is_ours
from app.base.db.rows import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",  # SQLite alters tables by copying them
    compare_type=True,
    include_name=is_ours,
)
context.run_migrations()
