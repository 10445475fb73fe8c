"""What people get: the outbox, texts, webhook, Slack, PagerDuty, Alertmanager, mail, Apprise."""
