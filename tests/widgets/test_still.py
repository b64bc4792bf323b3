"""The stills' colours: those that fill areas stay exactly as they are."""

import io

import numpy as np
from PIL import Image

from tinyvllm_lab.widgets.palette import COLOURS
from tinyvllm_lab.widgets.still import to_png


def stored(image: Image.Image) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(to_png(image))).convert("RGB")).astype(int)


def test_areas_keep_their_colours_and_rare_ones_become_the_nearest():
    image = Image.new("RGB", (240, 160), "#ffffff")
    for number, colour in enumerate(COLOURS):
        image.paste(colour, (30 * number, 20, 30 * number + 28, 120))
    shades = np.random.default_rng(0).integers(0, 256, (1, 200, 3), np.uint8)
    image.paste(Image.fromarray(shades), (0, 151))  # in no row that is looked at
    before, after = np.asarray(image).astype(int), stored(image)
    assert (after[:150] == before[:150]).all()
    known = np.unique(before[:150].reshape(-1, 3), axis=0)
    distances = ((before[151, :200, None] - known[None]) ** 2).sum(axis=2)
    found = ((before[151, :200] - after[151, :200]) ** 2).sum(axis=1)
    assert (found == distances.min(axis=1)).all()


def test_the_smallest_picture():
    assert (stored(Image.new("RGB", (1, 1), "#0072B2")) == [[[0, 0x72, 0xB2]]]).all()
