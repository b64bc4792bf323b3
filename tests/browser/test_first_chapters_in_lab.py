"""The first chapters in JupyterLab; see `chapters.py`."""

import pytest
from chapters import run_and_play, with_panels

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(600)]


@pytest.mark.parametrize("path", with_panels(lambda stem: stem < "08"))
def test_it_prints_what_is_stored_and_its_panels_show_the_engine(
    path, lab, open_notebook, record_property
):
    run_and_play(path, lab, open_notebook, record_property)
