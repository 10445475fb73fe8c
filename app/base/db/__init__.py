"""The database: engine, dialects, migration, packed rows."""
