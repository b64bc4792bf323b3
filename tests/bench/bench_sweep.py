"""The latency-throughput explorer, measured: time to the first point and to all, bytes of a sweep.

python tests/bench/bench_sweep.py
"""

import json
import time

from tinyvllm_lab.widgets import LatencyThroughput


class Timed(LatencyThroughput):
    """Notes when each message leaves, and how long it is."""

    _has_page = True
    sent: list[tuple[float, dict, int]]

    def send(self, content, buffers=None):
        self.sent.append((time.perf_counter(), content, len(json.dumps(content))))

    def measure(self, **knobs) -> str:
        """Turn knobs; when the capacity, the first point and all of them came."""
        self.sent = []
        began = time.perf_counter()
        self.turn(**knobs)
        self.wait(None)
        capacity = next(at for at, message, _ in self.sent if "capacity" in message)
        first = next(at for at, message, _ in self.sent if "point" in message)
        size = sum(length for _, _, length in self.sent)
        return (
            f"capacity after {1e3 * (capacity - began):.0f} ms, first point {first - began:.2f} s, "
            f"all {self.sent[-1][0] - began:.2f} s, {size:,} bytes"
        )


def main() -> None:
    Timed.sent = []
    explorer = Timed(max_num_seqs=60)
    explorer.wait(None)
    for seats in (64, 16, 128, 256):
        print(f"{seats:>4} seats: {explorer.measure(max_num_seqs=seats)}")
    explorer.close()


if __name__ == "__main__":
    main()
