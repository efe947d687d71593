"""Dashboards, rules and provisioning for Grafana and Prometheus, generated from the metrics."""
