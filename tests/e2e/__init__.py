"""The package with the real programs of a deployment: Jaeger, the Collector, Prometheus."""
