"""Requests, schedulers, executors, the engine loop, events, metrics and replay."""
