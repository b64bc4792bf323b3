"""`load`: from a kernel file's name to a module that runs it."""

from pathlib import Path

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.backend import announce, choose_backend, why_not_cpu
from tinyvllm_lab.kernels.module import Module
from tinyvllm_lab.kernels.sources import find_source, write_source


def load(
    name: str | Path,
    *,
    backend: str | None = None,
    checked: bool = False,
    defines: tuple[str, ...] = (),
) -> Module:
    """Build a `.cu` file, or find it in the cache, and load it.

    Args:
        name: one of the course's files ("rmsnorm"), or a path to a `.cu` file.
        backend: "cuda" or "cpu"; None takes the one `choose_backend` finds.
        checked: run every launch under the checker (CPU only): slower, and each bug it finds is
            raised as a `KernelError` that names the line. A crash cannot end this process.
        defines: macros for the compiler, "NAME" or "NAME=value".

    Where the CPU back end has no compiler, a file of the chapters can still be x-rayed and checked,
    from its recordings (`recorded`).

    Raises:
        KernelError: no such file, no usable back end, or the file does not compile.
    """
    source = find_source(name)
    chosen = "cpu" if checked and backend is None else backend
    if chosen is None:
        chosen = announce(choose_backend()).name
    if chosen == "cpu":
        return _load_cpu(source, checked, defines)
    if chosen == "cuda" and not checked:
        from tinyvllm_lab.kernels.cuda.launch import load_cuda

        return load_cuda(source, defines)
    raise KernelError(
        f"The back end {chosen!r} cannot load {source.name}{' checked' * checked}.",
        expected='"cuda" or "cpu"; the checker runs on the CPU',
        fix="Use tinyvllm_lab.kernels.ops, which has a torch twin of each kernel.",
    )


def load_source(
    text: str,
    name: str = "learner",
    *,
    backend: str | None = None,
    checked: bool | None = None,
    defines: tuple[str, ...] = (),
) -> Module:
    """Like `load`, from the text in a notebook's cell; checked, unless it goes to a GPU.

    Args:
        text: CUDA C++ with `extern "C" __global__` kernels.
        name: what reports call the file; a plain word.
        backend: as for `load`.
        checked: as for `load`; None means yes on the CPU.
        defines: as for `load`.

    Raises:
        KernelError: as `load`.
    """
    chosen = backend or ("cpu" if checked else announce(choose_backend()).name)
    on_cpu = chosen == "cpu"
    source = write_source(text, name)
    return load(
        source, backend=chosen, checked=on_cpu if checked is None else checked, defines=defines
    )


def _load_cpu(source: Path, checked: bool, defines: tuple[str, ...]) -> Module:
    if why_not_cpu():
        from tinyvllm_lab.kernels.recorded import recorded_module

        return recorded_module(source, defines)
    from tinyvllm_lab.kernels.cpu.build import build
    from tinyvllm_lab.kernels.cpu.checked import checked_launcher
    from tinyvllm_lab.kernels.cpu.launch import fast_launcher

    built = build(source, "checked" if checked else "fast", defines)
    launcher = checked_launcher(built) if checked else fast_launcher(built)
    return Module(source, built.declarations.kernels, launcher, defines)
