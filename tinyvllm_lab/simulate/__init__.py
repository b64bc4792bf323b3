"""Simulated time: hardware, cost model, virtual clock, workloads."""

from tinyvllm_lab._lazy import lazy_attributes

__getattr__, __all__ = lazy_attributes(
    __name__,
    {
        "Bursts": "tinyvllm_lab.simulate.arrivals",
        "ClosedLoop": "tinyvllm_lab.simulate.arrivals",
        "CostModel": "tinyvllm_lab.simulate.cost",
        "Efficiency": "tinyvllm_lab.simulate.hardware",
        "Fixed": "tinyvllm_lab.simulate.lengths",
        "Hardware": "tinyvllm_lab.simulate.hardware",
        "LogNormal": "tinyvllm_lab.simulate.lengths",
        "ModelShape": "tinyvllm_lab.simulate.models",
        "Overheads": "tinyvllm_lab.simulate.cost",
        "PRESETS": "tinyvllm_lab.simulate.presets",
        "Poisson": "tinyvllm_lab.simulate.arrivals",
        "SimulatedExecutor": "tinyvllm_lab.simulate.executor",
        "Turn": "tinyvllm_lab.simulate.presets",
        "Uniform": "tinyvllm_lab.simulate.lengths",
        "VirtualClock": "tinyvllm_lab.simulate.executor",
        "Workload": "tinyvllm_lab.simulate.workloads",
        "WorkloadRequest": "tinyvllm_lab.simulate.workloads",
        "WorkloadSource": "tinyvllm_lab.simulate.source",
        "Zipf": "tinyvllm_lab.simulate.lengths",
        "agent": "tinyvllm_lab.simulate.presets",
        "airport": "tinyvllm_lab.simulate.presets",
        "chat": "tinyvllm_lab.simulate.presets",
        "codegen": "tinyvllm_lab.simulate.presets",
        "find_hardware": "tinyvllm_lab.simulate.hardware",
        "find_model": "tinyvllm_lab.simulate.models",
        "independent": "tinyvllm_lab.simulate.presets",
        "make_workload": "tinyvllm_lab.simulate.presets",
        "rag": "tinyvllm_lab.simulate.presets",
        "text_workload": "tinyvllm_lab.simulate.text_workloads",
    },
)
