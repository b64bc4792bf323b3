import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.model.tokenizer import Tokenizer
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.simulate import presets
from tinyvllm_lab.simulate.arrivals import Bursts, ClosedLoop, Poisson
from tinyvllm_lab.simulate.lengths import Fixed
from tinyvllm_lab.simulate.presets import PRESETS, Turn, make_workload
from tinyvllm_lab.simulate.text_workloads import TASKS, text_workload
from tinyvllm_lab.simulate.workloads import Workload, WorkloadRequest, percentile


def request(name="a", **fields) -> WorkloadRequest:
    values = {"arrival_s": 0.0, "prompt_token_ids": (1, 2, 3), "max_tokens": 5, **fields}
    return WorkloadRequest(name, **values)


def play(workload: Workload, step_s: float = 1.0):
    """Answer each request with `max_tokens` zeros, one after the other: what each was asked."""
    source, now, prompts, times = workload.source(), 0.0, {}, {}
    while (due := source.next_arrival_s()) is not None:
        now = max(now, due)
        for arrival in source.take(now):
            name = arrival.request.request_id
            prompts[name], times[name] = list(arrival.prompt_token_ids), arrival.arrival_s
            now += step_s
            answer = [0] * arrival.request.max_tokens
            source.on_finish(name, prompts[name] + answer, now, completed=True)
    return prompts, times


# Requests and workloads


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("arrival_s", -1.0),
        ("arrival_s", float("nan")),
        ("arrival_s", float("inf")),
        ("prompt_token_ids", ()),
        ("prompt_token_ids", (1, -1)),
        ("max_tokens", 0),
        ("abort_after_s", -0.5),
        ("abort_after_tokens", 0),
        ("keep_history", True),
    ],
)
def test_a_bad_request_is_refused_by_field(field, value):
    with pytest.raises(ConfigError, match=field):
        request(**{field: value})


def test_links_must_lead_to_earlier_requests():
    with pytest.raises(ConfigError, match="Two requests"):
        Workload("w", (request("a"), request("a")))
    with pytest.raises(ConfigError, match="comes after 'b'"):
        Workload("w", (request("a", after="b"), request("b")))
    with pytest.raises(ConfigError, match="comes after 'a'"):
        Workload("w", (request("a", after="a"),))


def test_history_counts_into_prompt_and_context():
    first = request("a", max_tokens=10)
    second = request("b", after="a", keep_history=True, max_tokens=7)
    third = request("c", after="b")
    workload = Workload("w", (first, second, third))
    assert [workload.prompt_tokens(r) for r in workload] == [3, 16, 3]
    assert workload.longest_context == 23
    assert workload.output_tokens == 22
    assert len(workload) == 3


@given(st.lists(st.integers(0, 100), min_size=1, max_size=50), st.integers(1, 100))
def test_percentile_is_the_smallest_value_with_enough_below(values, percent):
    ordered = sorted(values)
    found = percentile(ordered, percent / 100)
    enough = [v for v in ordered if 100 * sum(x <= v for x in ordered) >= percent * len(ordered)]
    assert found == enough[0]


def test_the_table_adds_up():
    workload = presets.airport(50)
    rows = workload.summary_rows()
    assert [row["kind"] for row in rows[:-1]] == workload.kinds
    for column in ("requests", "hang up", "output sum"):
        assert rows[-1][column] == sum(row[column] for row in rows[:-1])
    lines = str(workload).splitlines()
    assert len({len(line) for line in lines[1:]}) == 1
    assert "long_prompt" in str(workload)


def test_the_figure_shows_every_request_once():
    workload = presets.airport(50)
    figure = workload.figure()
    bars = [trace for trace in figure.data if trace.type == "bar"]
    points = [trace for trace in figure.data if trace.type == "scatter"]
    assert sum(sum(trace.y) for trace in bars) == 50
    assert sum(len(trace.x) for trace in points) == 50
    assert len({trace.marker.color for trace in bars}) == 3
    assert len(Workload("empty", ()).figure().data) == 0


# The source


def test_arrivals_come_in_order_and_only_when_due():
    workload = Workload("w", (request("late", arrival_s=2.0), request("early", arrival_s=1.0)))
    source = workload.source()
    assert source.next_arrival_s() == 1.0
    assert source.take(0.999) == []
    assert [a.request.request_id for a in source.take(2.0)] == ["early", "late"]
    assert source.next_arrival_s() is None


def test_a_follower_waits_for_the_end_and_gets_the_history():
    later = request("b", arrival_s=4.0, after="a", keep_history=True, prompt_token_ids=(9,))
    source = Workload("w", (request("a"), later)).source()
    source.take(0.0)
    assert source.next_arrival_s() is None
    source.on_finish("a", [1, 2, 3, 70, 71], 10.0, completed=True)
    (arrival,) = source.take(14.0)
    assert arrival.arrival_s == 14.0
    assert list(arrival.prompt_token_ids) == [1, 2, 3, 70, 71, 9]


def test_an_aborted_conversation_ends_but_the_user_goes_on():
    workload = Workload(
        "w",
        (
            request("a"),
            request("b", after="a", keep_history=True),
            request("c", after="b", keep_history=True),
            request("next", after="c", arrival_s=1.0),
        ),
    )
    source = workload.source()
    source.take(0.0)
    source.on_finish("a", [1, 2, 3, 4], 5.0, completed=False)
    assert source.dropped == ["b", "c"]
    (arrival,) = source.take(6.0)
    assert arrival.request.request_id == "next"
    assert list(arrival.prompt_token_ids) == [1, 2, 3]


def test_a_very_long_chain_can_be_dropped():
    chain = [request("0")]
    chain += [request(str(i), after=str(i - 1), keep_history=True) for i in range(1, 5000)]
    source = Workload("w", tuple(chain)).source()
    source.on_finish("0", [], 1.0, completed=False)
    assert len(source.dropped) == 4999


def test_a_closed_loop_never_has_more_requests_than_users():
    workload = make_workload("w", [[Turn((1,), 1)]] * 30, ClosedLoop(4, think_s=1.0), seed=1)
    source, now, inside, done = workload.source(), 0.0, [], 0
    while source.next_arrival_s() is not None or inside:
        if source.next_arrival_s() is not None:
            now = max(now, source.next_arrival_s())
        inside += source.take(now)
        assert 1 <= len(inside) <= 4
        now += 0.1
        source.on_finish(inside.pop(0).request.request_id, [1, 1], now, completed=True)
        done += 1
    assert done == 30


# Presets


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_repeatable_and_can_be_saved(name, tmp_path):
    workload = PRESETS[name](10)
    assert workload == PRESETS[name](10)
    assert workload != PRESETS[name](10, seed=1)
    workload.save(tmp_path / "w.jsonl")
    assert Workload.load(tmp_path / "w.jsonl") == workload


@pytest.mark.parametrize("name", PRESETS)
def test_arrivals_do_not_change_what_is_asked(name):
    slow, burst = PRESETS[name](10, Poisson(0.1)), PRESETS[name](10, Bursts(5, 1.0))
    asked = [[(r.prompt_token_ids, r.max_tokens) for r in w] for w in (slow, burst)]
    assert asked[0] == asked[1]
    assert slow.nominal_arrivals() != burst.nominal_arrivals()


@pytest.mark.parametrize("name", PRESETS)
def test_playing_a_preset_gives_the_announced_prompts(name):
    workload = PRESETS[name](12)
    prompts, times = play(workload)
    assert len(prompts) == len(workload)
    for asked in workload:
        prompt = prompts[asked.request_id]
        assert len(prompt) == workload.prompt_tokens(asked)
        if asked.keep_history:
            earlier = prompts[asked.after]
            assert prompt[: len(earlier)] == earlier
            assert times[asked.request_id] > times[asked.after]
    assert max(max(prompt) for prompt in prompts.values()) < 2000


def test_chats_share_the_system_prompt_and_nothing_else():
    workload = presets.chat(200, system_tokens=50)
    firsts = [r.prompt_token_ids for r in workload if not r.keep_history]
    assert len(workload) == 200
    assert len({ids[:50] for ids in firsts}) == 1
    assert len({ids[50:54] for ids in firsts}) == len(firsts)


def test_the_thousand_chats_ask_for_about_200k_tokens():
    workload = presets.chat()
    assert len(workload) == 1000
    assert 180_000 < workload.output_tokens < 220_000


def test_rag_prompts_are_made_of_documents_and_popular_ones_come_first():
    workload = presets.rag(300, document=Fixed(10), instruction_tokens=5, question=Fixed(3))
    assert {len(r.prompt_token_ids) for r in workload} == {5 + 4 * 10 + 3}
    first = [r.prompt_token_ids[5:15] for r in workload]
    most_common = max(set(first), key=first.count)
    assert first.count(most_common) > 100
    assert len({r.prompt_token_ids[-3:] for r in workload}) > 290
    with pytest.raises(ConfigError, match="documents"):
        presets.rag(1, num_documents=3)


def test_an_agent_calls_ten_tools_and_its_context_grows():
    workload = presets.agent(3)
    assert len(workload) == 33
    for task in range(3):
        turns = workload.requests[task * 11 : task * 11 + 11]
        lengths = [workload.prompt_tokens(turn) for turn in turns]
        assert lengths == sorted(lengths)
        assert lengths[-1] > lengths[0] + 10 * 20
        assert turns[-1].max_tokens == 300


def test_the_airport_has_its_three_customers():
    workload = presets.airport(500)
    by_kind = {k: [r for r in workload if r.kind == k] for k in workload.kinds}
    assert 250 < len(by_kind["short_answer"]) < 350
    assert min(len(r.prompt_token_ids) for r in by_kind["long_prompt"]) >= 1500
    assert max(r.max_tokens for r in by_kind["short_answer"]) <= 32
    assert {r.abort_after_tokens for r in by_kind["hangs_up"]} == {40}


def test_conversations_get_times_and_names():
    conversations = [[Turn((1,), 1), Turn((2,), 1, pause_s=3.0)], [Turn((3,), 1)]]
    workload = make_workload("w", conversations, ClosedLoop(1))
    assert [r.request_id for r in workload] == ["w-0.0", "w-0.1", "w-1"]
    assert [r.after for r in workload] == [None, "w-0.0", "w-0.1"]
    assert [r.keep_history for r in workload] == [False, True, False]
    assert workload.nominal_arrivals() == [0.0, 3.0, 3.0]


# Text


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_dir(assets_dir() / "models" / "tiny")


def test_text_prompts_are_the_tokenizers(tokenizer):
    workload = text_workload(tokenizer, 30, kinds=tuple(TASKS))
    assert set(workload.kinds) == set(TASKS)
    for asked in workload:
        text = tokenizer.decode(asked.prompt_token_ids, skip_special_tokens=False)
        assert text.startswith("<|begin_of_text|>")
        assert text.endswith(f"{asked.prompt}<|eot_id|>" + ANSWER)
        assert (asked.abort_after_tokens is not None) == (asked.kind == "hangs_up")
    assert workload.longest_context < 1024


ANSWER = "<|start_header_id|>assistant<|end_header_id|>\n\n"


def test_counting_answers_fit_their_limit(tokenizer):
    for asked in text_workload(tokenizer, 40, kinds=["count"]):
        first, last = (int(w.strip(".")) for w in asked.prompt.split() if w.strip(".").isdigit())
        answer = ", ".join(map(str, range(first, last + 1))) + ".<|eot_id|>"
        assert len(tokenizer.encode(answer, add_special_tokens=False)) <= asked.max_tokens


def test_later_turns_continue_the_conversation(tokenizer):
    workload = text_workload(tokenizer, 2, kinds=["short_answer"], turns=3)
    source = workload.source()
    name, messages = "text-0.0", []
    for turn in range(3):
        arrival = next(a for a in source.take(1e9) if a.request.request_id == name)
        messages.append({"role": "user", "content": arrival.request.prompt})
        assert list(arrival.prompt_token_ids) == tokenizer.encode_chat(messages)
        answer = tokenizer.encode("I do not know.<|eot_id|>", add_special_tokens=False)
        messages.append({"role": "assistant", "content": "I do not know."})
        source.on_finish(name, [*arrival.prompt_token_ids, *answer], 1.0, completed=True)
        name = f"text-0.{turn + 1}"


def test_unknown_kinds_of_text_are_refused(tokenizer):
    with pytest.raises(ConfigError, match="sonnet"):
        text_workload(tokenizer, kinds=["sonnet"])
    with pytest.raises(ConfigError, match="turns=0"):
        text_workload(tokenizer, turns=0)


def test_a_saved_workload_is_readable(tmp_path):
    workload = Workload("w", (replace(request(), prompt="Grüße"),), seed=3, about="One.")
    workload.save(tmp_path / "w.jsonl")
    header, line = map(json.loads, (tmp_path / "w.jsonl").read_text().splitlines())
    assert header == {"workload": "w", "version": 1, "seed": 3, "about": "One."}
    assert line == {
        "request_id": "a", "arrival_s": 0.0, "prompt_token_ids": [1, 2, 3], "max_tokens": 5,
        "prompt": "Grüße",
    }  # fmt: skip
