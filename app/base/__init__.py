"""What every subject stands on and that knows none of them: values, errors, database, jobs, network, pages."""
