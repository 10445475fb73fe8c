"""Run reports as JSON, Markdown, JUnit and HTML."""
