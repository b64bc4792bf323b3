"""The visualizer: one anywidget per panel, fed by the engine's events."""
