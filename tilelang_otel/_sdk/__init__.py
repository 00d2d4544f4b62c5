"""Building a tracer provider with OpenTelemetry's SDK, and getting spans out of the process."""
