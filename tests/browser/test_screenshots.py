"""The folder of screenshots has every public panel, in each theme and width, and nothing else."""

import re

from PIL import Image
from screenshots import FOLDER, SCENES, THEMES, WIDTHS, file_of

from tinyvllm_lab import widgets
from tinyvllm_lab.widgets.display import Displayed


def public_panels() -> set[str]:
    """What a notebook can show, each by the name of its module, and `compare`."""
    things = [getattr(widgets, name) for name in widgets.__all__]
    panels = [t for t in things if isinstance(t, type) and issubclass(t, Displayed)]
    names = {panel.__module__.rsplit(".", 1)[1] for panel in panels if panel is not widgets.Panel}
    return names | {"compare"}


def test_every_public_panel_has_a_scene() -> None:
    assert public_panels() == set(SCENES)


def test_the_folder_has_their_pictures_and_no_other() -> None:
    want = {file_of(s, t, w) for s in SCENES for t in THEMES for w in WIDTHS}
    assert {path.name for path in FOLDER.iterdir()} == want


def test_the_pictures_are_small_and_not_blank() -> None:
    files = sorted(FOLDER.iterdir())
    assert sum(file.stat().st_size for file in files) < 4e6
    for file in files:
        image = Image.open(file)
        assert image.mode == "P", file.name
        assert image.width > 1000, file.name
        colours = image.getcolors()
        assert colours is not None
        assert len(colours) > 20, file.name


def test_the_readme_shows_pictures_that_are_there() -> None:
    root = FOLDER.parents[1]
    shown = re.findall(r'(?:src|srcset)="([^"]+)"', (root / "README.md").read_text())
    assert len(shown) >= 10
    assert [path for path in shown if not (root / path).is_file()] == []
