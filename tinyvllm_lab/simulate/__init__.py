"""Simulated time: hardware, cost model, virtual clock, workloads."""
