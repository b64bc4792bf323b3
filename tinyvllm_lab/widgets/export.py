"""Panels as a web page: one file with code and run inside, for any browser, without a network."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.widgets.esm import page_script
from tinyvllm_lab.widgets.picture import encode_run

if TYPE_CHECKING:
    from tinyvllm_lab.widgets.feed import RunFeed
    from tinyvllm_lab.widgets.kernel_xray import KernelXRay
    from tinyvllm_lab.widgets.latency_throughput import LatencyThroughput
    from tinyvllm_lab.widgets.panel import Panel

    Saved: TypeAlias = Panel | KernelXRay | LatencyThroughput

_TRAITS = (
    *("feed_id", "name", "title", "caption", "size", "controls", "options", "linked_feed"),
    "runs",  # of the kernel x-ray
    *("choice", "tables", "curves", "selected_place"),  # of the latency-throughput explorer
)

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{css}
body {{ background: #ffffff; margin: 0 auto; max-width: 1210px; padding: 12px; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #0b0d10; }} }}
</style>
<body class="tvl-offline">
<script type="module">
{code}
const feeds = {feeds};
const panels = {panels};
$$offline.mount(feeds, panels, {{ $feed: $$feed, {modules} }});
</script>
</body>
</html>
"""


def save_html(path: str | Path, *panels: Saved, title: str | None = None) -> Path:
    """Write one file that shows the panels, animated, in any browser, with no network.

    A run that still goes on is stored as far as it came.

    Args:
        path: the file.
        panels: one or more, also of several runs.
        title: of the page; None: the first panel's.

    Raises:
        ConfigError: there is no panel.
        OSError: the file cannot be written.
    """
    if not panels:
        raise ConfigError("There is nothing to save.", "at least one panel")
    names = sorted({panel.module for panel in panels})
    feeds = dict.fromkeys(feed for panel in panels for feed in panel.shown_feeds())
    text = _PAGE.format(
        title=html.escape(title or panels[0].title),
        css="\n".join(dict.fromkeys(panel._css for panel in panels)),
        code=page_script(["feed", "offline", *names]),
        feeds=_json([_feed(feed) for feed in feeds]),
        panels=_json([_panel(panel) for panel in panels]),
        modules=", ".join(f"{name}: $${name}" for name in names),
    )
    path = Path(path)
    path.write_text(text, encoding="utf-8")
    return path


def _feed(feed: RunFeed) -> dict[str, Any]:
    data, _ = encode_run(feed.event_log)
    return {
        "feed_id": feed.feed_id,
        "run_data": base64.b64encode(data).decode(),
        "start_step": feed.opening_step,
        "is_live": False,
        "pace": None,
        "status": {"state": "", "error": "", "traceback": ""},
    }


def _panel(panel: Saved) -> dict[str, Any]:
    traits = {name: getattr(panel, name) for name in _TRAITS if hasattr(panel, name)}
    return {"module": panel.module, **traits}


def _json(value: Any) -> str:
    """JSON that may stand inside a script element; bytes as base64."""
    text = json.dumps(value, default=lambda data: base64.b64encode(data).decode())
    return text.replace("</", "<\\/")
