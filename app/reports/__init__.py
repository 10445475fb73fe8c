"""What people look at: the status page, pages of runs and canaries, reports, badges, Prometheus."""
