"""The GPU path: the suite of cuda_suite.py in a process of its own, and what needs no driver."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.cuda.compiler import choose_target

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "fake_driver"))
fake_driver = importlib.import_module("fake_driver")


def suite_environment() -> dict[str, str]:
    if fake_driver.has_real_driver():
        if importlib.util.find_spec("pycuda") is None:
            pytest.skip("a GPU, but no PyCUDA: pip install pycuda")
        return dict(os.environ)
    if reason := fake_driver.why_no_pycuda():
        pytest.skip(reason)
    return fake_driver.environment()


@pytest.mark.needs("cxx", "nvcc")
@pytest.mark.timeout(1800)
def test_suite_on_the_gpu_or_the_fake_driver():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "cuda_suite.py"]
    environment = {k: v for k, v in suite_environment().items() if k != "TINYVLLM_BACKEND"}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fake_driver_stays_out_of_a_real_ones_way(monkeypatch):
    monkeypatch.setattr(fake_driver, "has_real_driver", lambda: True)
    with pytest.raises(RuntimeError, match="real CUDA driver"):
        fake_driver.load_fake_driver()


@pytest.mark.parametrize(
    ("device", "compiler", "target"),
    [
        (80, (75, 80, 90), "sm_80"),
        (86, (75, 80, 90), "compute_80"),  # PTX of the nearest older one, for the driver to finish
        (121, (75, 80, 120), "compute_120"),
        (75, (75,), "sm_75"),
    ],
)
def test_target_fits_device_and_compiler(device, compiler, target):
    assert choose_target(device, compiler) == target


def test_a_gpu_too_old_for_the_compiler_is_named():
    with pytest.raises(KernelError, match=r"sm_70.*\n.*sm_75 or newer"):
        choose_target(70, (75, 80))
