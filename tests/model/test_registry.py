"""Names, folders and hub ids: which folder they mean, and what is said when there is none."""

import json
import shutil
import sys
import types

import pytest

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model import registry
from tinyvllm_lab.model.registry import list_models, resolve_model
from tinyvllm_lab.paths import user_cache_dir

LLAMA = "meta-llama/Llama-3.2-1B-Instruct"


@pytest.fixture(autouse=True)
def empty_caches(tmp_path, monkeypatch):
    """No test sees, or fills, the caches of the machine."""
    monkeypatch.setenv("TINYVLLM_LAB_CACHE", str(tmp_path / "ours"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def copy_tiny(folder):
    shutil.copytree(registry.tiny_dir(), folder)
    return folder


def cached(empty_caches, hub_id=LLAMA, commit="abc", main=True):
    """Put a model into the hub's cache, the way its library does."""
    folder = empty_caches / "hub" / ("models--" + hub_id.replace("/", "--"))
    snapshot = copy_tiny(folder / "snapshots" / commit)
    if main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
    return snapshot


def fake_hub_library(monkeypatch, snapshot_download):
    """A `huggingface_hub` whose download we decide."""
    errors = types.ModuleType("huggingface_hub.errors")
    errors.GatedRepoError = type("GatedRepoError", (Exception,), {})
    errors.RepositoryNotFoundError = type("RepositoryNotFoundError", (Exception,), {})
    library = types.ModuleType("huggingface_hub")
    library.snapshot_download, library.errors = snapshot_download, errors
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    return errors


def test_the_shipped_model_is_found():
    assert (resolve_model("tiny") / "model.safetensors").is_file()


def test_a_folder_is_itself(empty_caches):
    folder = copy_tiny(empty_caches / "mine")
    assert resolve_model(folder) == folder
    assert resolve_model(str(folder)) == folder


def test_smollm2_says_how_to_get_it_and_is_found_then(empty_caches):
    with pytest.raises(ModelError, match="tinyvllm-lab models get smollm2-135m"):
        resolve_model("smollm2-135m")
    folder = copy_tiny(empty_caches / "ours" / "models" / "smollm2-135m")
    assert resolve_model("smollm2-135m") == folder


def test_a_folder_without_a_config_says_what_it_holds(empty_caches):
    (empty_caches / "meta").mkdir()
    (empty_caches / "meta" / "params.json").write_text("{}")
    with pytest.raises(ModelError, match=r"no config\.json, but params\.json"):
        resolve_model(empty_caches / "meta")


@pytest.mark.parametrize("name", ["tinny", "", "a/b/c", "../x", "nul\0", "x" * 10_000, "Hi!"])
def test_a_name_that_means_nothing_lists_what_would(name, empty_caches):
    with pytest.raises(ModelError, match=r"There is no model|is no model folder"):
        resolve_model(name)


def test_a_hub_id_is_found_in_the_cache(empty_caches):
    cached(empty_caches, commit="old", main=False)
    snapshot = cached(empty_caches, commit="new")
    assert resolve_model(LLAMA) == snapshot


def test_a_download_that_was_cut_short_does_not_count(empty_caches, monkeypatch):
    complete = cached(empty_caches, commit="old", main=False)
    snapshot = cached(empty_caches, commit="new")
    weights = snapshot / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert resolve_model(LLAMA) == complete
    shutil.rmtree(complete)
    fetched = []
    fake_hub_library(monkeypatch, lambda hub_id, **_: fetched.append(hub_id) or "/fetched")
    assert str(resolve_model(LLAMA)) == "/fetched"
    assert fetched == [LLAMA]


@pytest.mark.parametrize("variable", ["HF_HOME", "XDG_CACHE_HOME"])
def test_the_cache_moves_with_the_librarys_variables(variable, empty_caches, monkeypatch):
    snapshot = cached(empty_caches)
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HF_HOME", raising=False)
    place = "hf" if variable == "HF_HOME" else "huggingface"
    (empty_caches / place).mkdir()
    (empty_caches / "hub").rename(empty_caches / place / "hub")
    monkeypatch.setenv(variable, str(empty_caches / (place if variable == "HF_HOME" else "")))
    assert resolve_model(LLAMA).relative_to(empty_caches / place) == snapshot.relative_to(
        empty_caches
    )


def test_our_cache_layout_agrees_with_the_hubs_library(empty_caches):
    library = pytest.importorskip("huggingface_hub")
    snapshot = cached(empty_caches)
    theirs = library.snapshot_download(LLAMA, local_files_only=True, cache_dir=empty_caches / "hub")
    assert theirs == str(snapshot)


def test_only_json_templates_and_safetensors_are_fetched(empty_caches, monkeypatch):
    asked = {}
    fake_hub_library(monkeypatch, lambda hub_id, **options: asked.update(options) or "/fetched")
    resolve_model(LLAMA)
    assert asked["allow_patterns"] == ["*.json", "*.jinja", "*.safetensors"]


def test_without_the_hubs_library_the_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=f"hf download {LLAMA}"):
        resolve_model(LLAMA)


def test_offline_the_command_is_named(monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("no route to host")

    fake_hub_library(monkeypatch, offline)
    with pytest.raises(ModelError, match=r"no route to host\nFix: Once online: hf download"):
        resolve_model(LLAMA)


@pytest.mark.parametrize("kind", ["GatedRepoError", "RepositoryNotFoundError"])
def test_a_gated_model_says_where_to_accept_its_licence(kind, monkeypatch):
    def refuse(*_, **__):
        raise getattr(errors, kind)

    errors = fake_hub_library(monkeypatch, refuse)
    with pytest.raises(ModelError, match=f"licence on https://huggingface.co/{LLAMA}"):
        resolve_model(LLAMA)


def test_the_list_says_what_is_here(empty_caches):
    rows = {row.name: row for row in list_models()}
    assert list(rows)[:2] == ["tiny", "smollm2-135m"]
    assert rows["tiny"].installed
    assert rows["tiny"].num_bytes > 13_000_000
    assert not rows["smollm2-135m"].installed
    assert rows["smollm2-135m"].where == "tinyvllm-lab models get smollm2-135m"
    assert rows[LLAMA].where == f"hf download {LLAMA}"
    assert all(row.about for row in rows.values())


def test_the_list_shows_llamas_in_the_hubs_cache_and_nothing_else(empty_caches):
    snapshot = cached(empty_caches)
    cached(empty_caches, "somebody/own-llama")
    other = cached(empty_caches, "somebody/bert") / "config.json"
    other.write_text(json.dumps({"architectures": ["BertModel"], "model_type": "bert"}))
    rows = {row.name: row for row in list_models()}
    assert rows[LLAMA].installed
    assert rows[LLAMA].where == str(snapshot)
    assert rows["somebody/own-llama"].installed
    assert "somebody/bert" not in rows


def test_the_user_cache_follows_its_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("TINYVLLM_LAB_CACHE", "~/here")
    assert user_cache_dir().name == "here"
    monkeypatch.delenv("TINYVLLM_LAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache_dir() == tmp_path / "tinyvllm-lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_cache_dir().parts[-2:] == (".cache", "tinyvllm-lab")
