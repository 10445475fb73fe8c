"""What the documents of all subjects share: fields, widgets, YAML, messages."""
