"""Rules, the state of alerts, incidents, silences, acknowledgement, and why there is an alert or none."""
