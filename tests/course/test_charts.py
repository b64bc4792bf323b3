"""The course's charts: colours that can be told apart, and a title that says what they show."""

import plotly.graph_objects as go
import pytest

from tinyvllm_lab.course.charts import OKABE_ITO, chart, token_strip
from tinyvllm_lab.errors import ConfigError


def luminance(colour: str) -> float:
    """WCAG 2.1's relative luminance of "#rrggbb"."""
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2.1's contrast ratio."""
    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_text_reads_on_jupyterlabs_light_and_dark_page(page: str) -> None:
    fig = chart("Title", "measured", x="s", y="tokens")
    assert contrast(fig.layout.template.layout.font.color, page) > 3.9
    assert fig.layout.template.layout.paper_bgcolor == "rgba(0, 0, 0, 0)"


@pytest.mark.parametrize("colour", OKABE_ITO)
def test_series_stand_out_from_both_pages(colour: str) -> None:
    assert min(contrast(colour, "#ffffff"), contrast(colour, "#111111")) > 2.0


def test_a_title_says_what_is_shown_and_where_it_comes_from() -> None:
    fig = chart("Weights", "drawn: from the formula", y="bytes")
    assert "<b>Weights</b>" in fig.layout.title.text
    assert "drawn: from the formula" in fig.layout.title.text
    assert fig.layout.yaxis.title.text == "bytes"


def test_a_chart_without_an_honest_source_is_refused() -> None:
    with pytest.raises(ConfigError, match="measured, simulated, drawn"):
        chart("Weights", "estimated")


def test_a_token_strip_has_a_box_for_each_token_without_gaps() -> None:
    fig = token_strip(["Once", " upon"], [576, 847], "Tokens", "measured")
    assert isinstance(fig, go.Figure)
    (bar,) = fig.data
    assert bar.base[1] == bar.base[0] + bar.x[0]
    assert bar.text == ("<b>Once</b><br>576", "<b>␣upon</b><br>847")
