"""Stop strings across token borders; the oracle looks at every end of the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from tinyvllm_lab.model.detokenizer import StopStringChecker

PIECES = st.lists(st.tuples(st.text(alphabet="ab\n", max_size=4), st.booleans()), max_size=12)
STOPS = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=4)


def brute_force(pieces, stops):
    """(shown text, stop string): the first end at which a stop string is complete and counts."""
    text = ""
    for piece, may_stop in pieces:
        for char in piece:
            text += char
            endings = [stop for stop in stops if may_stop and text.endswith(stop)]
            if endings:
                found = max(endings, key=len)
                return text[: -len(found)], found
    return text, None


@given(PIECES, STOPS)
def test_equals_brute_force(pieces, stops):
    checker = StopStringChecker(stops)
    shown = [checker.push(text, may_stop) for text, may_stop in pieces]
    found = checker.found
    shown.append(checker.flush())
    assert ("".join(shown), found) == brute_force(pieces, stops)


@given(PIECES, STOPS)
def test_what_was_shown_is_never_taken_back(pieces, stops):
    checker = StopStringChecker(stops)
    shown, text = "", ""
    for piece, _ in pieces:
        text += piece
        shown += checker.push(piece)
        assert text.startswith(shown)
        if checker.found is None:
            held = text[len(shown) :]
            assert held == "" or any(s.startswith(held) and s != held for s in stops)


def test_a_stop_string_over_three_pieces():
    checker = StopStringChecker(["\nUser:"])
    assert [checker.push(p) for p in ("Hi.", "\nUs", "er", ": more")] == ["Hi.", "", "", ""]
    assert checker.found == "\nUser:"
    assert checker.push("and more") == ""
    assert checker.flush() == ""


def test_a_false_start_is_shown_as_soon_as_it_is_known():
    checker = StopStringChecker(["###"])
    assert [checker.push(p) for p in ("a#", "#", "b", "#")] == ["a", "", "##b", ""]
    assert checker.flush() == "#"


def test_a_stop_string_before_min_tokens_does_not_count_31():
    checker = StopStringChecker(["END"])
    assert checker.push("an END here", may_stop=False) == "an END here"
    assert checker.push(", then EN", may_stop=False) == ", then "
    assert checker.push("D.") == ""
    assert checker.found == "END"


def test_without_stop_strings_nothing_is_held():
    assert StopStringChecker([]).push("text") == "text"
