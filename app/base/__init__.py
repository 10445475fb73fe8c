"""What every subject is built on and what knows none of them: values, errors, database, jobs, network, pages."""
