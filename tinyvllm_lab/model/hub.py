"""Models of the Hugging Face hub: found in the local cache, or downloaded with its library.

The cache is read without the library, for most readers do not have it: a repository lies in
`models--owner--name/snapshots/<commit>/`, and `refs/main` names the commit.
Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tinyvllm_lab.errors import ModelError, SafetensorsError
from tinyvllm_lab.model.safetensors import open_checkpoint

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_FILES = ["*.json", "*.jinja", "*.safetensors"]  # not Meta's own copy of the weights in original/


def is_hub_id(name: str) -> bool:
    """True if `name` looks like owner/name on the hub."""
    return _ID.fullmatch(name) is not None


def hub_cache_dir() -> Path:
    """The local cache, by the hub library's own rules."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    home = os.environ.get("HF_HOME")
    if home is None:
        caches = os.environ.get("XDG_CACHE_HOME")
        return (Path(caches) if caches else Path.home() / ".cache") / "huggingface" / "hub"
    return Path(home).expanduser() / "hub"


def cached_ids() -> Iterator[str]:
    """Ids of all models in the local cache, complete or not."""
    for folder in sorted(hub_cache_dir().glob("models--*--*")):
        yield folder.name.removeprefix("models--").replace("--", "/", 1)


def find_in_cache(hub_id: str) -> Path | None:
    """The newest complete download of a model in the local cache, the main branch preferred."""
    folder = hub_cache_dir() / ("models--" + hub_id.replace("/", "--"))
    snapshots = sorted((folder / "snapshots").glob("*"), key=lambda path: -path.stat().st_mtime)
    main = folder / "refs" / "main"
    if main.is_file():
        snapshots.insert(0, folder / "snapshots" / main.read_text().strip())
    return next((path for path in snapshots if _is_complete(path)), None)


def download(hub_id: str) -> Path:
    """Fetch a model with the hub's library; it resumes, checks and caches.

    Raises:
        ModelError: the library is not installed, there is no connection, no such model, or no
            permission.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
    except ImportError:
        raise ModelError(
            f"{hub_id} is not in the Hugging Face cache ({hub_cache_dir()}), and the package "
            "huggingface_hub, which could fetch it, is not installed.",
            fix=f"pip install huggingface_hub, then: {_command(hub_id)}",
        ) from None
    try:
        return Path(snapshot_download(hub_id, allow_patterns=_FILES))
    except (GatedRepoError, RepositoryNotFoundError) as error:
        raise ModelError(
            f"The hub does not give out {hub_id}: it needs permission, or does not exist.",
            fix=f"Accept its licence on https://huggingface.co/{hub_id}, then: hf auth login, and: "
            + _command(hub_id),
        ) from error
    except Exception as error:  # the library passes on whatever its HTTP client raises
        raise ModelError(
            f"{hub_id} is not in the Hugging Face cache, and could not be fetched: {error}",
            fix=f"Once online: {_command(hub_id)}",
        ) from error


def _command(hub_id: str) -> str:
    return f"hf download {hub_id} --include '*.json' --include '*.safetensors'"


def _is_complete(folder: Path) -> bool:
    """True if a download was not cut short: config, tokenizer and every file of weights."""
    if not all((folder / name).is_file() for name in ("config.json", "tokenizer.json")):
        return False
    try:
        open_checkpoint(folder).close()
    except SafetensorsError:
        return False
    return True
