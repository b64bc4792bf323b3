"""What all tests share: one thread per process, no deadlines, and what a machine lacks.

A test that needs a program which a machine may lack says so: `@pytest.mark.needs("chromium")`.
Without it the test is not run, and one line at the end says what would run it. With CI=true
nothing may be left out: there every skipped test is a failure. A test that does
`record_property("took", text)` gets `text` printed at the end.
"""

import os
import shutil
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# Before torch or numpy is imported: tests run in several processes, each with one thread.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# name -> (programs, any of which will do; what gets one)
TOOLS = {
    "chromium": (("chromium", "chromium-browser", "google-chrome"), "install chromium"),
    "cxx": (("g++", "clang++"), "install g++ or clang"),
    "nvcc": (("nvcc",), "install the CUDA toolkit"),
    "node": (("node",), "install Node.js 18 or newer"),
}

# Busy machines are slow: a timing never fails a test. CI must not depend on luck.
settings.register_profile(
    "lab",
    deadline=None,
    derandomize=IN_CI,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lab")


def missing_tool(name: str) -> str | None:
    """The reason why `name` cannot be used here, or None if it is there."""
    programs, fix = TOOLS[name]
    if any(shutil.which(program) for program in programs):
        return None
    return f"needs {' or '.join(programs)} ({fix})"


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if reason := missing_tool(name):
                pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    return _refuse_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    return _refuse_skip(report)


def _refuse_skip(report):
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"Not run, and CI runs everything: {_skip_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter) -> None:
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == "took":
                terminalreporter.write_line(value)
    reasons = Counter(_skip_reason(r) for r in terminalreporter.stats.get("skipped", []))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"not run: {count} test(s): {reason}")


def _skip_reason(report) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
