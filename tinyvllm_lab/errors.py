"""Every error that tinyvllm-lab raises on purpose.

An error says three things: what was wrong, what was expected, and what to do about it. Catch
`TinyVllmError` to catch them all.
"""


class TinyVllmError(Exception):
    """Base of all our errors.

    Args:
        what: what was wrong, naming the file, field or request.
        expected: what would have been right.
        fix: what the reader can do about it.
    """

    def __init__(self, what: str, expected: str = "", fix: str = "") -> None:
        self.what, self.expected, self.fix = what, expected, fix
        super().__init__(self._message())

    def _message(self) -> str:
        lines = [self.what]
        if self.expected:
            lines.append(f"Expected: {self.expected}")
        if self.fix:
            lines.append(f"Fix: {self.fix}")
        return "\n".join(lines)


class SafetensorsError(TinyVllmError):
    """A Safetensors file or its index is damaged (chapter 02)."""


class ModelError(TinyVllmError):
    """A model folder, its config or its tokenizer cannot be used."""


class ConfigError(TinyVllmError):
    """A field of `EngineConfig`, `SamplingParams` or a workload is out of range."""


class RequestRefused(TinyVllmError):
    """A request was refused at the door; the others go on."""


class KnobRefused(TinyVllmError):
    """A knob cannot change while the engine runs."""


class CacheError(TinyVllmError):
    """The block pool or an allocator was misused; nothing was changed."""


class EngineError(TinyVllmError):
    """The engine cannot go on; the message shows queue, pool and reason."""


class LogError(TinyVllmError):
    """A stored event log is damaged, cut off, or from another version."""


class StepFailed(EngineError):
    """The executor failed in one step: its batch is lost, the engine can go on."""


class KernelError(TinyVllmError):
    """A kernel could not be built or launched, or a check found a bug in it."""
