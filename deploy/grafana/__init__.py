"""The dashboards of Coalmine as code, and what Grafana needs to show them."""
