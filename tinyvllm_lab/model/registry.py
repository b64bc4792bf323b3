"""Which model is meant by a name, and which models are here."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tinyvllm_lab import paths
from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model import hub
from tinyvllm_lab.model.config import ModelConfig

TINY = "tiny"
SMOLLM2 = "smollm2-135m"


@dataclass(frozen=True)
class ModelRow:
    """One line of `tinyvllm-lab models`.

    `where` is the folder, or the command that brings it; `num_bytes` what it takes on the disk,
    or about what it will take.
    """

    name: str
    where: str
    num_bytes: int
    installed: bool
    about: str


@dataclass(frozen=True)
class _HubModel:
    hub_id: str
    num_bytes: int
    about: str


_KNOWN_ON_THE_HUB = (
    _HubModel(
        "meta-llama/Llama-3.2-1B-Instruct",
        2_471_600_000,
        "The model the course is about. Needs an account and its licence accepted.",
    ),
    _HubModel(
        "meta-llama/Llama-3.2-3B-Instruct",
        6_425_500_000,
        "Its larger sister, in two files.",
    ),
)


def tiny_dir() -> Path:
    """Folder of the shipped model."""
    return paths.assets_dir() / "models" / TINY


def smollm2_dir() -> Path:
    """Folder where `models get smollm2-135m` puts its model."""
    return paths.user_cache_dir() / "models" / SMOLLM2


def resolve_model(name_or_path: str | Path) -> Path:
    """The folder of a model.

    Args:
        name_or_path: "tiny" (shipped), "smollm2-135m" (after `tinyvllm-lab models get`), a folder
            in Hugging Face's layout, or a hub id such as "meta-llama/Llama-3.2-1B-Instruct", which
            is looked up in the local Hugging Face cache and downloaded if it is not there.

    Raises:
        ModelError: there is no such model; the message says how to get it.
    """
    if not isinstance(name_or_path, str | Path):
        raise ModelError(
            f"The model is {name_or_path!r}.",
            "its name, or the path of its folder",
            f"LLM({TINY!r})",
        )
    name = str(name_or_path)
    if name == TINY:
        return tiny_dir()
    if name == SMOLLM2:
        return _installed_smollm2()
    folder = Path(name_or_path).expanduser()
    if _is_dir(folder):
        return _model_folder(folder)
    if isinstance(name_or_path, str) and hub.is_hub_id(name):
        return hub.find_in_cache(name) or hub.download(name)
    raise ModelError(
        f"There is no model {name!r}.",
        expected=f"{TINY!r}, {SMOLLM2!r}, a folder, or a hub id (owner/name)",
        fix="`tinyvllm-lab models` lists the models on this machine.",
    )


def list_models() -> list[ModelRow]:
    """Every model we know of: shipped, to be fetched, and those in the Hugging Face cache."""
    tiny, smollm2 = tiny_dir(), smollm2_dir()
    is_here = (smollm2 / "config.json").is_file()
    return [
        ModelRow(
            TINY, str(tiny), _size(tiny), True, "Shipped: 6.8 M parameters, little stories, counts."
        ),
        ModelRow(
            SMOLLM2,
            str(smollm2) if is_here else _smollm2_command(),
            _size(smollm2) if is_here else 272_600_000,
            is_here,
            "A real chat model, Apache-2.0, without an account (93 MB to download).",
        ),
        *_hub_rows(),
    ]


def _hub_rows() -> Iterator[ModelRow]:
    known = {model.hub_id: model for model in _KNOWN_ON_THE_HUB}
    for hub_id in [*known, *(i for i in hub.cached_ids() if i not in known)]:
        folder = hub.find_in_cache(hub_id)
        if folder is not None and _is_llama(folder):
            about = known[hub_id].about if hub_id in known else "In the Hugging Face cache."
            yield ModelRow(hub_id, str(folder), _size(folder), True, about)
        elif hub_id in known:
            model = known[hub_id]
            yield ModelRow(hub_id, f"hf download {hub_id}", model.num_bytes, False, model.about)


def _is_llama(folder: Path) -> bool:
    try:
        ModelConfig.from_dir(folder)
    except ModelError:
        return False
    return True


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _smollm2_command() -> str:
    return f"tinyvllm-lab models get {SMOLLM2}"


def _installed_smollm2() -> Path:
    folder = smollm2_dir()
    if (folder / "config.json").is_file():
        return folder
    raise ModelError(
        f"{SMOLLM2} is not on this machine yet.",
        expected=f"its files in {folder}",
        fix=f"{_smollm2_command()}   (93 MB, once)",
    )


def _is_dir(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError:  # a name too long for the file system, or a folder we may not look into
        return False


def _model_folder(folder: Path) -> Path:
    if (folder / "config.json").is_file():
        return folder
    found = sorted(path.name for path in folder.iterdir())[:6]
    raise ModelError(
        f"{folder} is no model folder: it has no config.json, but {', '.join(found) or 'nothing'}.",
        expected="Hugging Face's layout: config.json, tokenizer.json, model.safetensors",
        fix="For Meta's own layout (params.json, consolidated.*.pth) or GGUF, take the model's "
        "Hugging Face repository instead.",
    )
