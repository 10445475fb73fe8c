"""Notifications on their way to people: the outbox, texts, webhook, Slack, PagerDuty, Alertmanager, mail, Apprise."""
