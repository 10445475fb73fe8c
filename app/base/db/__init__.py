"""The database: engine, dialects, migration, packed rows, API keys."""
