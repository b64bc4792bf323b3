"""What the notebooks need around the engine: tooling, checks, doctor."""
