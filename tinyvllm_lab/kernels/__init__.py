"""Find, build, launch and x-ray the CUDA kernels, on a GPU or on the CPU."""

from tinyvllm_lab._lazy import lazy_attributes

__getattr__, __all__ = lazy_attributes(
    __name__,
    {
        "load": "tinyvllm_lab.kernels.loader",
        "load_source": "tinyvllm_lab.kernels.loader",
        "check": "tinyvllm_lab.kernels.inspection",
        "xray": "tinyvllm_lab.kernels.inspection",
        "recorded_xray": "tinyvllm_lab.kernels.recorded",
        "resource_report": "tinyvllm_lab.kernels.resources",
        "op_functions": "tinyvllm_lab.kernels.ops",
        "KernelRunner": "tinyvllm_lab.kernels.ops",
        "OPS": "tinyvllm_lab.kernels.ops",
        "choose_backend": "tinyvllm_lab.kernels.backend",
        "Module": "tinyvllm_lab.kernels.module",
        "Function": "tinyvllm_lab.kernels.module",
    },
)
