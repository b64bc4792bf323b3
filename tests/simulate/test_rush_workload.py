"""The workload by which the playground is timed is what its script makes, and as big as it says."""

import json
import runpy

from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.simulate.workloads import Workload

FOLDER = assets_dir() / "workloads"


def test_its_script_makes_the_file() -> None:
    lines = runpy.run_path(str(FOLDER / "make_rush.py"))["lines"]()
    stored = (FOLDER / "rush.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in stored] == list(lines)


def test_it_is_five_hundred_requests_and_ten_thousand_request_steps() -> None:
    workload = Workload.load(FOLDER / "rush.jsonl")
    assert len(workload) == 500
    requests = simulate(workload).metrics().requests
    assert sum(request.output_tokens for request in requests) == workload.output_tokens
    assert workload.output_tokens >= 10_000
