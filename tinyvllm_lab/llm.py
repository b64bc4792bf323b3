"""`LLM`: the front door. Load a model, send prompts, get text (chapter 00).

It steps the engine in the caller's thread: an error in your own kernel or scheduler ends up in the
cell that called it. Where the engine must run by itself, an `EngineRunner` owns it instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from tinyvllm_lab.engine.config import EngineConfig, as_config
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.events import Reason
from tinyvllm_lab.engine.outputs import CompletionOutput, RequestOutput
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.torch_executor import Kernels, TokenSampler, TorchExecutor
from tinyvllm_lab.errors import ConfigError, EngineError
from tinyvllm_lab.model.chat import Message
from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.model.registry import resolve_model
from tinyvllm_lab.model.sampling import Sampler
from tinyvllm_lab.model.tokenizer import Tokenizer

Prompt = str | Sequence[int]
PROGRESS_AFTER_S = 2.0


class LLM:
    """A model and the engine that runs it.

    Args:
        model: "tiny", "smollm2-135m", a folder in Hugging Face's layout, or a hub id.
        dtype: of weights and KV cache; None: as in the file.
        engine_config: the knobs. `max_model_len` is lowered to the positions that the model knows.
        device: None: a GPU if there is one, else the CPU.
        kernels: "torch"; "cpu" or "cuda" for the course's kernels; or your own functions by
            operation (chapters 06, 07 and 11).
        sampler: your own choice of tokens (chapter 04); None: `Sampler`.
        cuda_graphs: replay decode steps as CUDA graphs; None: with kernels="cuda" on a GPU.
        engine_options: further arguments of `Engine`: `scheduler`, `block_pool`, `log`, …

    Attributes:
        model, tokenizer, engine: what it is made of.
        default_sampling_params: what the model's makers recommend; used where a call passes none.

    Raises:
        ModelError, SafetensorsError: the model cannot be used; the message says why.
        ConfigError: the config is none, or there is no such device.
        CacheError: there is no memory for the KV cache.
    """

    def __init__(
        self,
        model: str | Path = "tiny",
        dtype: str | torch.dtype | None = None,
        engine_config: EngineConfig | None = None,
        *,
        device: str | torch.device | None = None,
        kernels: Kernels = "torch",
        sampler: TokenSampler | None = None,
        cuda_graphs: bool | None = None,
        **engine_options: Any,
    ) -> None:
        config, on = as_config(engine_config), _device(device)
        folder = resolve_model(model)
        self.tokenizer = Tokenizer.from_dir(folder)
        self.model = LlamaModel.from_dir(folder, dtype, on)
        shape = self.model.config
        max_len = min(config.max_model_len, shape.max_position_embeddings)
        config = replace(config, max_model_len=max_len)
        self.engine = Engine(
            config,
            TorchExecutor(
                self.model,
                config,
                kernels=kernels,
                sampler=sampler or Sampler(),
                cuda_graphs=cuda_graphs,
            ),
            tokenizer=self.tokenizer,
            vocab_size=shape.vocab_size,
            eos_token_ids=sorted({*shape.eos_token_ids, *self.tokenizer.eos_token_ids}),
            **engine_options,
        )
        advice = shape.generation
        self.default_sampling_params = SamplingParams(
            temperature=advice.temperature if advice.do_sample else 0.0, top_p=advice.top_p
        )
        self._token_times: dict[Request, list[float]] = {}
        # Several threads may call; only one at a time makes a step, or reads what a step wrote.
        self._stepping = threading.Lock()

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Iterator[str]:
        """Text of one answer, piece by piece, as it comes; the pieces have whole characters.

        The request starts with the first piece that is asked for. Closing the iterator aborts it.

        Args:
            prompt: text or token ids.

        Raises:
            ConfigError: more than one sample was asked for.
            RequestRefused: the request could never run.
            EngineError: a step failed.
        """
        params = sampling_params or self.default_sampling_params
        if params.n != 1:
            raise ConfigError(
                f"SamplingParams.n is {params.n}.",
                "1: a stream shows one answer",
                "Use generate() for several samples of a prompt.",
            )
        return self._stream(prompt, params)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Answer all prompts together, and wait for the last one.

        Args:
            prompts: one prompt or many; each is text or token ids.
            sampling_params: for all prompts, or one for each.
            progress: show a bar if it takes longer than two seconds.

        Returns:
            One output a prompt, in the order of the prompts.

        Raises:
            ConfigError: there are not as many sampling params as prompts.
            RequestRefused: one of the requests could never run; then none is run.
            EngineError: a step failed; requests that were not finished are dropped.
        """
        prompt_list = _as_prompts(prompts)
        params = self._as_params(sampling_params, len(prompt_list))
        with self._sent(prompt_list, params) as requests:
            self._run([s for r in requests for s in (r, *r.children)], progress)
            with self._stepping:
                return [self._output(request) for request in requests]

    def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        progress: bool = True,
        **template_variables: Any,
    ) -> RequestOutput:
        """The assistant's next turn in a conversation.

        Args:
            messages: [{"role": "user", "content": "Hello"}, …].
            sampling_params: None: `default_sampling_params`.
            progress: show a bar if it takes longer than two seconds.
            template_variables: for the chat template, as in `date_string="26 Jul 2024"`.

        Raises:
            ModelError: the model has no chat template, or refuses the messages.
            RequestRefused, EngineError: as `generate`.
        """
        prompt = self.tokenizer.encode_chat(messages, **template_variables)
        return self.generate([prompt], sampling_params, progress=progress)[0]

    def close(self) -> None:
        """End all requests and give back the KV memory."""
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------ requests and steps

    @contextmanager
    def _sent(
        self, prompts: Sequence[Prompt], params: Sequence[SamplingParams]
    ) -> Iterator[list[Request]]:
        """The requests of one call. Whatever happens, none of them outlives it."""
        requests: list[Request] = []
        try:
            for prompt, sampling_params in zip(prompts, params, strict=True):
                request = self.engine.add_request(prompt, sampling_params)
                requests.append(request)
                self._token_times.update((s, []) for s in (request, *request.children))
            yield requests
        except Exception:
            # The first error counts: what the clean-up stumbles over follows from it.
            with suppress(Exception):
                self._drop_all(requests)
            raise
        except BaseException:  # an interrupt, or a stream that was closed
            self._drop_all(requests)
            raise
        else:
            self._drop_all(requests)

    def _drop_all(self, requests: Sequence[Request]) -> None:
        self._drop([sample for r in requests for sample in (r, *r.children)])

    def _drop(self, samples: Sequence[Request]) -> None:
        unfinished = {sample.request_id for sample in samples if not sample.is_finished}
        for request_id in unfinished:
            self.engine.abort(request_id)
        for sample in samples:
            self._token_times.pop(sample, None)
        # An abort takes effect in a step. If others run, theirs will do; else there is none.
        leaving = {name for name, _ in list(self.engine.inbox.aborts)}
        if unfinished and leaving.issuperset(list(self.engine.requests)):
            self._step()

    def _step(self) -> None:
        with self._stepping:
            output = self.engine.step()
            now = self.engine.clock.now()
            for request, _, _ in output.tokens:
                if request in self._token_times:
                    self._token_times[request].append(now)

    def _stream(self, prompt: Prompt, params: SamplingParams) -> Iterator[str]:
        num_shown = 0
        with self._sent([prompt], [params]) as (request,):
            while True:
                # Not from the step's own output: another call may have made the step.
                with self._stepping:
                    is_last, piece = request.is_finished, request.text[num_shown:]
                if piece:
                    num_shown += len(piece)
                    yield piece
                if is_last:
                    break
                self._step()
        if request.finish_reason is Reason.ERROR:
            raise EngineError(f"{request.request_id!r} ended in a step that failed.")

    def _run(self, samples: Sequence[Request], progress: bool) -> None:
        unfinished = list(samples)
        with tqdm(
            total=len(samples), unit="answer", delay=PROGRESS_AFTER_S, disable=not progress
        ) as bar:
            while unfinished:
                self._step()
                num_before = len(unfinished)
                unfinished = [sample for sample in unfinished if not sample.is_finished]
                bar.set_postfix(tokens=sum(s.num_output_tokens for s in samples), refresh=False)
                bar.update(num_before - len(unfinished))

    # ------------------------------------------------------------ inputs and outputs

    def _as_params(
        self, given: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
    ) -> list[SamplingParams]:
        if given is None or isinstance(given, SamplingParams):
            return [given or self.default_sampling_params] * num_prompts
        if not isinstance(given, Sequence) or not all(isinstance(p, SamplingParams) for p in given):
            raise ConfigError(
                f"The sampling params are {given!r}.",
                "one SamplingParams for all prompts, or one for each",
                "Pass SamplingParams(temperature=0.7), for example.",
            )
        if len(given) != num_prompts:
            raise ConfigError(
                f"There are {num_prompts} prompts, and {len(given)} sampling params.",
                "one SamplingParams for all prompts, or one for each",
            )
        return list(given)

    def _output(self, request: Request) -> RequestOutput:
        samples = [request, *request.children]
        return RequestOutput(
            request.request_id,
            request.prompt,
            request.prompt_token_ids,
            [CompletionOutput.of(i, s, self._token_times[s]) for i, s in enumerate(samples)],
        )


def _device(asked: str | torch.device | None) -> torch.device:
    """Where the model goes: a GPU if nothing was asked and there is one."""
    if asked is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(asked)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        here = ", ".join(["cpu", *gpus])
        reason = f"{error}".splitlines()[0]
        raise ConfigError(
            f"device is {asked!r}: {reason}.", f"a device of this machine: {here}"
        ) from error
    return device


def _as_prompts(prompts: Any) -> list[Prompt]:
    """A list of prompts; one prompt, as text or as token ids, becomes a list of it."""
    is_one = isinstance(prompts, str) or not isinstance(prompts, Sequence)
    if is_one or (len(prompts) > 0 and hasattr(prompts[0], "__index__")):
        return [prompts]
    return list(prompts)
