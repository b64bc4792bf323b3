"""Who holds which KV block, and how full it is; `static/kv.js` computes the same in the browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tinyvllm_lab.engine.state import EngineState
from tinyvllm_lab.widgets.moment import Moment


@dataclass(slots=True)
class Holdings:
    """The pool at one moment.

    Attributes:
        owner: block -> the request that holds it; the first one by seat if several do.
        filled: block -> tokens in it.
        block_size: tokens of a full block.
        regions: token slots of contiguous regions, which need not end with a block.
    """

    block_size: int
    owner: dict[int, int] = field(default_factory=dict)
    filled: dict[int, int] = field(default_factory=dict)
    regions: int = 0

    @property
    def held(self) -> int:
        """Token slots of all held blocks (a shared one once) or regions."""
        return self.regions or len(self.owner) * self.block_size

    @property
    def wasted(self) -> int:
        """Of these, slots without a token."""
        return self.held - sum(self.filled.values())


def holders(state: EngineState) -> Iterator[int]:
    """Requests that may hold memory: those in seats first, by seat."""
    seated = state.running
    yield from seated
    known = set(seated)
    for request, record in state.requests.items():
        if (record.table or record.region) and request not in known:
            yield request


def holdings_of(moment: Moment) -> Holdings:
    """Read the block tables (contiguous: the regions, cut into pieces of a block's size)."""
    holdings = Holdings(moment.config.block_size)
    for request in holders(moment.state):
        record = moment.state.requests.get(request)
        if record is None:
            continue
        for place, block in enumerate(record.table):
            tokens = record.num_computed - place * holdings.block_size
            _hold(holdings, block, request, max(0, min(holdings.block_size, tokens)))
        if record.region is not None:
            _hold_region(holdings, request, record.region, record.num_computed)
    return holdings


def _hold(holdings: Holdings, block: int, request: int, tokens: int) -> None:
    holdings.owner.setdefault(block, request)
    holdings.filled[block] = max(holdings.filled.get(block, 0), tokens)


def _hold_region(holdings: Holdings, request: int, region: tuple[int, int], computed: int) -> None:
    start, length = region
    holdings.regions += length
    size = holdings.block_size
    slot = start
    while slot < start + length:
        block = slot // size + 1  # block 0 is the null block
        end = min(block * size, start + length)
        tokens = max(0, min(end, start + computed) - slot)
        holdings.owner.setdefault(block, request)
        holdings.filled[block] = holdings.filled.get(block, 0) + tokens
        slot = end
