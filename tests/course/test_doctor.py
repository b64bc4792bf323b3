"""The doctor: each check from made-up facts, and one look at the real machine."""

import importlib.metadata
import subprocess
import sys

import pytest

from tinyvllm_lab.course import doctor, machine
from tinyvllm_lab.course.doctor import Check, Status

OK, WARN, FAIL = Status.OK, Status.WARN, Status.FAIL
GIB = 1 << 30
LISTING = """JupyterLab v4.6.6
/env/share/jupyter/labextensions
        anywidget v0.11.0 enabled OK
        @jupyter-widgets/jupyterlab-manager v5.0.16 {state} (python, jupyterlab_widgets)
"""


def test_python_has_a_floor() -> None:
    assert doctor.check_python((3, 11, 0)).status is OK
    assert doctor.check_python((3, 10, 14)).status is FAIL


def test_named_packages_get_a_line_each_and_the_others_one_together() -> None:
    requirements = ["torch>=2.5", "jupyterlab>=4.4,<5", "tqdm>=4", "rich>=13"]
    versions = {"torch": "2.13.0+cpu", "jupyterlab": "3.6.1", "tqdm": None, "rich": "15.0.0"}
    torch, lab, rest = doctor.check_packages(requirements, versions)
    assert torch == Check("torch", OK, "2.13.0+cpu")
    assert lab.status is FAIL
    assert "3.6.1 is installed, <5,>=4.4 is needed" in lab.detail
    assert (rest.status, rest.detail) == (FAIL, "tqdm is not installed")
    assert doctor.check_packages([], {})[0].status is FAIL


@pytest.mark.parametrize(
    ("kernel_python", "status"),
    [
        ("/env/bin/python3.12", OK),
        ("python3", OK),
        ("/usr/bin/python3", FAIL),
        ("/envs/other/bin/python", FAIL),
        (None, FAIL),
    ],
)
def test_the_kernel_must_run_in_this_environment(kernel_python, status) -> None:
    assert doctor.check_kernel(kernel_python, "/env", "/env/bin/python").status is status


@pytest.mark.parametrize(
    ("jupyter", "status"),
    [("/env/bin/jupyter-lab", OK), (None, OK), ("/usr/bin/jupyter-lab", WARN)],
)
def test_another_jupyter_on_the_path_is_pointed_out(jupyter, status) -> None:
    assert doctor.check_server(jupyter, "/env").status is status


def test_panels_need_both_extensions() -> None:
    assert doctor.check_extensions(LISTING.format(state="enabled OK")).status is OK
    for listing in (LISTING.format(state="disabled OK"), LISTING.format(state="enabled X"), ""):
        check = doctor.check_extensions(listing)
        assert check.status is FAIL
        assert "jupyterlab_widgets" in check.fix
        assert "restart JupyterLab" in check.fix


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        ((None, None, None), OK, "CPU"),
        (("L4, driver 550", "12.4", None), WARN, "built for the CPU"),
        (("L4, driver 550", "12.4", "13.0"), WARN, "driver runs CUDA 12.4"),
        (("L4, driver 550", "12.4", "12.9"), OK, "torch for CUDA 12.9"),
        (("L4, driver 550", None, "12.9"), OK, "L4"),
    ],
)
def test_a_card_needs_a_torch_and_a_driver_that_fit(facts, status, words) -> None:
    check = doctor.check_gpu(*facts)
    assert check.status is status
    assert words in check.detail


@pytest.mark.parametrize(
    ("nvcc", "archs", "card", "status", "words"),
    [
        (None, [], None, OK, "without a GPU none is needed"),
        (None, [], "compute_90", WARN, "own kernels do not run"),
        ("CUDA 13.0", ["compute_75", "compute_90"], "compute_90", OK, "CUDA 13.0"),
        ("CUDA 13.0", ["compute_75", "compute_90"], None, OK, "CUDA 13.0"),
        ("CUDA 13.0", ["compute_75"], "compute_70", WARN, "does not know compute_70"),
        ("CUDA 11.8", ["compute_35", "compute_90"], "compute_120", WARN, "compute_120"),
    ],
)
def test_nvcc_matters_only_with_a_card(nvcc, archs, card, status, words) -> None:
    check = doctor.check_nvcc(nvcc, archs, card)
    assert check.status is status
    assert words in check.detail
    if "does not know" in check.detail:
        assert ("older" if card == "compute_70" else "newer") in check.fix


def test_memory_is_held_against_the_weights() -> None:
    assert doctor.check_memory(2 * GIB, 4 * GIB, "x").status is OK
    short = doctor.check_memory(2 * GIB, 2 * GIB, "x")
    assert short.status is WARN
    assert "2.0 GiB free, 'x' needs about 3.0 GiB" in short.detail
    assert doctor.check_memory(None, 4 * GIB, "x").status is WARN
    assert doctor.check_memory(2 * GIB, None, "x").status is OK


def test_whatever_is_not_ok_says_how_to_mend_it() -> None:
    lines = doctor.report([
        Check("a", OK, "fine"), Check("long name", FAIL, "broken", "mend it"),
    ]).splitlines()  # fmt: skip
    assert lines == [
        "OK    a          fine",
        "FAIL  long name  broken",
        "                 fix: mend it",
    ]


def test_the_requirements_are_those_of_the_installed_package() -> None:
    found = machine.our_requirements()
    assert "jupyterlab<5,>=4.4" in found
    assert any(line.startswith("torch>=") for line in found)
    assert not any(line.startswith("pytest") for line in found)


def test_this_machine_passes_and_torch_is_not_imported() -> None:
    code = (
        "import sys; from tinyvllm_lab.course.doctor import doctor; good = doctor();"
        "sys.exit(not good or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"OK    torch         {importlib.metadata.version('torch')}" in done.stdout
    assert "FAIL" not in done.stdout
