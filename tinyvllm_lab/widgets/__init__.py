"""The visualizer: one anywidget per panel, fed by the engine's events.

    from tinyvllm_lab.widgets import Airport, BlockMap, show

    Airport(run)  # an EventLog, a stored run's path, an EngineRunner, an LLM, a simulation's Run
    show(Airport(run), BlockMap(run), columns=2)

The way of the data: `picture` turns events into bytes, `feed.RunFeed` carries them to the browser
(one feed per run, however many panels), `static/replayer.js` rebuilds the state, and each panel
draws it. How to add a panel: see `panel`.
"""

from tinyvllm_lab._lazy import lazy_attributes

__getattr__, __all__ = lazy_attributes(
    __name__,
    {
        "Airport": "tinyvllm_lab.widgets.airport",
        "BlockMap": "tinyvllm_lab.widgets.block_map",
        "BlockTable": "tinyvllm_lab.widgets.block_table",
        "ContiguousStrip": "tinyvllm_lab.widgets.contiguous_strip",
        "KVWallet": "tinyvllm_lab.widgets.kv_wallet",
        "KernelXRay": "tinyvllm_lab.widgets.kernel_xray",
        "LatencyThroughput": "tinyvllm_lab.widgets.latency_throughput",
        "LaunchGeometry": "tinyvllm_lab.widgets.launch_geometry",
        "MetricStrip": "tinyvllm_lab.widgets.metric_strip",
        "Panel": "tinyvllm_lab.widgets.panel",
        "Playground": "tinyvllm_lab.widgets.playground",
        "PlaygroundSettings": "tinyvllm_lab.widgets.playground_settings",
        "Roofline": "tinyvllm_lab.widgets.roofline",
        "RunFeed": "tinyvllm_lab.widgets.feed",
        "SafetensorsMap": "tinyvllm_lab.widgets.safetensors_map",
        "SlotTimeline": "tinyvllm_lab.widgets.slot_timeline",
        "TokenStream": "tinyvllm_lab.widgets.token_stream",
        "WorkloadKnobs": "tinyvllm_lab.widgets.playground_settings",
        "compare": "tinyvllm_lab.widgets.comparison",
        "save_html": "tinyvllm_lab.widgets.export",
        "show": "tinyvllm_lab.widgets.page",
    },
)
