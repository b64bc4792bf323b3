"""The engine's samples and forks, its failures, and places for a learner's own parts."""

import pytest
from helpers import CheckingExecutor, FakeClock, alone, make_engine, run

from tinyvllm_lab.cache import BlockPool, PagedAllocator
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.plan import StepResult
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.scheduler import Scheduler
from tinyvllm_lab.errors import (
    ConfigError,
    EngineError,
    RequestRefused,
    StepFailed,
)
from tinyvllm_lab.model.tokenizer import Tokenizer
from tinyvllm_lab.paths import assets_dir


def params(max_tokens, **more):
    return SamplingParams(max_tokens=max_tokens, **more)


def kinds(engine):
    return [Kind(k) for k in engine.log.as_array()[:, 0].tolist()]


# ----------------------------------------------------------------------- samples


def test_samples_share_the_prompt_and_an_abort_ends_all_of_them():
    engine = make_engine(num_blocks=40, block_size=4)
    parent = engine.add_request(list(range(10)), params(8, n=3, seed=7))
    assert [c.sampling_params.seed for c in parent.children] == [8, 9]
    engine.step()
    engine.step()
    tables = [r.block_table for r in (parent, *parent.children)]
    assert tables[0][:2] == tables[1][:2] == tables[2][:2]
    assert len({table[2] for table in tables}) == 3
    engine.abort(parent.request_id)
    run(engine)
    assert {r.finish_reason for r in (parent, *parent.children)} == {Reason.ABORT}
    assert engine.requests == {}


def test_samples_of_a_parent_that_never_started_end_with_it():
    engine = make_engine()
    parent = engine.add_request([1, 2], params(8, n=3))
    engine.abort(parent.request_id)
    run(engine)
    assert all(r.finish_reason is Reason.ABORT for r in (parent, *parent.children))
    assert engine.requests == {}


def copies(engine):
    return kinds(engine).count(Kind.BLOCK_COPY)


@pytest.mark.parametrize("steps", [1, 2, 5, 7])
def test_a_fork_goes_on_from_where_its_parent_is(steps):
    """The parent's prompt takes two steps: the first fork comes in the middle of it."""
    engine = make_engine(num_blocks=40, block_size=4, max_num_batched_tokens=6)
    parent = engine.add_request(list(range(10)), params(12))
    for _ in range(steps):
        engine.step()
    child = engine.fork(parent.request_id, params(9))
    so_far = list(child.token_ids)
    run(engine)
    assert child.parent == parent.index
    assert parent.output_token_ids == alone(list(range(10)), 12)
    assert child.output_token_ids == alone(so_far, 9)
    assert Kind.FORK in kinds(engine)
    assert Kind.BLOCK_SHARE in kinds(engine)
    assert engine.requests == {}


def test_whoever_writes_first_into_a_shared_block_copies_it():
    engine = make_engine(num_blocks=40, block_size=4)
    parent = engine.add_request(list(range(10)), params(8))
    engine.step()
    engine.step()
    first = engine.fork(parent.request_id)
    second = engine.fork(first.request_id, new_id="second")
    run(engine)
    assert copies(engine) > 0
    for child in (first, second):
        assert child.output_token_ids[:6] == parent.output_token_ids[2:8]


def test_a_fork_without_a_parent_a_seat_or_memory_to_share():
    with pytest.raises(RequestRefused, match="'nobody'"):
        make_engine().fork("nobody")
    for knobs in (
        {"max_num_seqs": 1},
        {"allocator": "contiguous-first-fit", "enable_prefix_caching": False},
        {"use_kv_cache": False, "enable_prefix_caching": False},
    ):
        engine = make_engine(**knobs)
        parent = engine.add_request([1, 2, 3], params(4))
        engine.step()
        child = engine.fork(parent.request_id, params(3))
        so_far = list(child.token_ids)
        run(engine)
        assert child.output_token_ids == alone(so_far, 3)
    engine = make_engine()
    engine.add_request([1, 2], params(3, n=2), request_id="twins")
    with pytest.raises(RequestRefused, match="'twins/1'"):
        engine.fork("twins/1")  # it begins when its parent's prompt is computed
    run(engine)
    parent = engine.add_request([1, 2, 3], params(4))
    engine.step()
    child = engine.fork(parent.request_id)
    engine.abort(child.request_id)
    run(engine)
    assert child.finish_reason is Reason.ABORT
    assert parent.num_output_tokens == 4


# ------------------------------------------------------------------------ errors


class Broken(CheckingExecutor):
    def execute(self, plan):
        if any(r.request_id == "bad" for r in plan.requests):
            raise ValueError("no")
        return super().execute(plan)


def test_a_failing_executor_ends_its_batch_and_leaves_no_hash_of_what_was_not_written():
    config = EngineConfig(block_size=4, num_blocks=30, max_num_seqs=1)
    engine = make_engine(Broken(config), block_size=4, num_blocks=30, max_num_seqs=1)
    bad = engine.add_request(list(range(9)), params(3), request_id="bad")
    good = engine.add_request(list(range(9)), params(3))
    with pytest.raises(EngineError, match="ValueError: no") as caught:
        engine.step()
    assert "bad" in caught.value.fix
    assert isinstance(caught.value.__cause__, ValueError)
    assert bad.finish_reason is Reason.ERROR
    plan = engine.step().plan
    assert plan.hit_tokens == [0]
    run(engine)
    assert good.output_token_ids == alone(list(range(9)), 3)


def test_an_interrupt_leaves_an_engine_that_can_go_on():
    class Interrupted(CheckingExecutor):
        def execute(self, plan):
            raise KeyboardInterrupt

    engine = make_engine(Interrupted(EngineConfig()))
    engine.add_request([1, 2], params(3))
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert not engine.has_work
    engine.scheduler.check_invariants()


def test_close_ends_everything():
    engine = make_engine()
    requests = [engine.add_request([1, 2], params(30)) for _ in range(3)]
    engine.step()
    engine.close()
    assert all(r.finish_reason is Reason.ABORT for r in requests)
    assert not engine.has_work


@pytest.mark.parametrize("answer", [[], [0.5], ["a"], [1, 2]])
def test_an_executor_that_answers_nonsense_fails_by_name(answer):
    class Odd(CheckingExecutor):
        def execute(self, plan):
            return StepResult(answer)

    engine = make_engine(Odd(EngineConfig()))
    request = engine.add_request([1, 2], params(3))
    with pytest.raises(StepFailed, match="1 rows"):
        engine.step()
    assert request.finish_reason is Reason.ERROR
    assert engine.log.num_steps == 1
    run(engine)


def test_a_scheduler_that_raises_leaves_no_half_step_in_the_log():
    class Buggy(Scheduler):
        def schedule(self):
            raise ZeroDivisionError("my bug")

    engine = make_engine(engine={"scheduler": Buggy})
    engine.add_request([1], params(2))
    with pytest.raises(ZeroDivisionError, match="my bug"):
        engine.step()
    assert kinds(engine).count(Kind.STEP) == kinds(engine).count(Kind.STEP_END) == 1


# ------------------------------------------------------------ a learner's own parts


class LastFirst(BlockPool):
    """A learner's pool: takes the block from the other end."""

    def allocate(self, count, owner, index):
        queue = self._queue
        queue.prepend_many(self._take_tail(count))
        return super().allocate(count, owner, index)

    def _take_tail(self, count):
        taken = self.free_queue()[-count:] if count else []
        for block in taken:
            self._queue.remove(block)
        return taken


@pytest.mark.parametrize("as_object", [True, False])
def test_an_own_pool_is_used(as_object):
    pool = LastFirst(20) if as_object else LastFirst
    engine = make_engine(num_blocks=20, engine={"block_pool": pool})
    request = engine.add_request([1, 2, 3], params(5))
    engine.step()
    assert request.block_table == [19]
    run(engine)


def test_a_pool_of_another_size_is_refused_and_one_without_events_gets_them():
    with pytest.raises(ConfigError, match="100 blocks"):
        make_engine(num_blocks=20, engine={"block_pool": BlockPool(100)})
    with pytest.raises(ConfigError, match="Both"):
        make_engine(engine={"block_pool": BlockPool(256), "scheduler": Scheduler})
    engine = make_engine(num_blocks=20, engine={"block_pool": BlockPool(20)})
    engine.add_request([1, 2, 3], params(5))
    run(engine)
    assert Kind.BLOCK_ALLOC in kinds(engine)


def test_an_own_policy_and_an_own_scheduler_are_used():
    def longest_prompt_first(request):
        return -request.num_prompt_tokens, request.index

    engine = make_engine(max_num_seqs=1, engine={"policy_key": longest_prompt_first})
    sent = [engine.add_request([1] * n, params(2)) for n in (2, 9, 5)]
    run(engine)
    order = [row[1] for row in engine.log.as_array().tolist() if row[0] == Kind.ADMIT]
    assert order == [sent[1].index, sent[2].index, sent[0].index]

    class Own(Scheduler):
        pass

    config = EngineConfig()
    log = EventLog(config)
    for scheduler in (Own, Own(config, log.buffer)):
        engine = Engine(config, CheckingExecutor(config), scheduler=scheduler, log=log)
        assert isinstance(engine.scheduler, Own)
        engine.add_request([1], params(2))
        run(engine)
        assert engine.log is log


def test_without_a_log_everything_works():
    engine = make_engine(engine={"log": False})
    request = engine.add_request([1, 2], params(5, n=2))
    run(engine)
    assert engine.log is None
    assert request.output_token_ids == alone([1, 2], 5)


# -------------------------------------------------------------------------- text


def test_text_prompts_stop_strings_and_texts_in_the_log():
    tokenizer = Tokenizer.from_dir(assets_dir() / "models" / "tiny")
    answer = tokenizer.encode("one two three four", add_special_tokens=False)

    class Scripted(CheckingExecutor):
        def execute(self, plan):
            result = super().execute(plan)
            result.token_ids = [answer[r.num_output_tokens] for r in plan.requests]
            return result

    config = EngineConfig(check_invariants=True)
    engine = Engine(config, Scripted(config), tokenizer=tokenizer, clock=FakeClock())
    request = engine.add_request("Count.", params(len(answer), stop=("three",)))
    pieces = []
    while engine.has_work:
        pieces += [text for _, _, text in engine.step().tokens]
    assert request.text == "".join(pieces) == "one two "
    assert request.finish_reason is Reason.STOP
    assert "".join(engine.log.texts[t] for t in request.output_token_ids).startswith("one two")


def test_25_a_weak_hash_serves_the_wrong_keys_and_values():
    """Bug idea 25: with 1 bit of hash another prompt's blocks hit, and the executor notices."""
    config = EngineConfig(block_size=4, num_blocks=20)
    engine = make_engine(CheckingExecutor(config), block_size=4, num_blocks=20)
    memory = engine.scheduler.memory
    engine.scheduler.memory = PagedAllocator(
        memory.pool, 4, hash_function=lambda parent, ids, salt: bytes([sum(ids) % 2])
    )
    engine.add_request([1, 2, 3, 4, 5], params(1))
    run(engine)
    engine.add_request([9, 9, 9, 9, 5], params(1))
    with pytest.raises(EngineError, match="reads"):
        run(engine)
