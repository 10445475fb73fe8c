"""What people and programs send of traffic: queries, exports of tracing tools, spans; and requests about it."""
