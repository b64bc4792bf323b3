"""tinyvllm-lab: build a small LLM inference engine, and watch it think.

The public names below are imported on first use, so `import tinyvllm_lab` is light.
"""

from tinyvllm_lab._lazy import lazy_attributes

__version__ = "0.1.0"

__getattr__, __all__ = lazy_attributes(
    __name__,
    {
        "LLM": "tinyvllm_lab.llm",
        "SamplingParams": "tinyvllm_lab.engine.sampling_params",
        "EngineConfig": "tinyvllm_lab.engine.config",
        "Engine": "tinyvllm_lab.engine.engine",
        "EngineRunner": "tinyvllm_lab.engine.runner",
        "EventLog": "tinyvllm_lab.engine.log",
        "TinyVllmError": "tinyvllm_lab.errors",
        "recorded_run": "tinyvllm_lab.engine.recordings",
        "recorded_runs": "tinyvllm_lab.engine.recordings",
        "require": "tinyvllm_lab.course.require",
    },
)
