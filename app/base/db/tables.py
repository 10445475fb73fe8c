"""SQLAlchemy metadata with its naming convention for constraints, and the id columns all tables share."""

from sqlalchemy import BigInteger, Column, Integer, MetaData

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite fills only a column of type INTEGER from its row id.
Id = BigInteger().with_variant(Integer, "sqlite")


def id_column() -> Column[int]:
    """Return the column of an id that the database assigns."""
    return Column("id", Id, primary_key=True, autoincrement=True)
