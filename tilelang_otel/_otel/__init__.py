"""What OpenTelemetry's own variables say, and what they accept. Loads no SDK."""
