"""What people read: a report as Markdown, JSON, JUnit XML, tables and HTML."""
