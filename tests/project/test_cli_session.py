"""The real engine behind the command line, in a real terminal: answers, Ctrl-C, and the end."""

import signal
import sys
import termios
import time

import pexpect
import pytest

CLI = ["-c", "from tinyvllm_lab.cli import main; main()"]
PROMPT = "you> "


def start(*arguments: str) -> pexpect.spawn:
    return pexpect.spawn(
        sys.executable,
        [*CLI, *arguments],
        encoding="utf-8",
        timeout=120,
        dimensions=(40, 200),
        # A shell starts jobs in the background with Ctrl-C ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def exit_status(child: pexpect.spawn) -> int | None:
    child.expect(pexpect.EOF)
    child.wait()
    return child.exitstatus


@pytest.fixture
def chat():
    child = start("chat", "--model", "tiny", "--max-tokens", "200")
    child.expect(PROMPT)
    yield child
    child.close(force=True)


def ask(child: pexpect.spawn, line: str) -> str:
    """Send a line at the prompt; what is printed until the next prompt."""
    child.sendline(line)
    child.expect(PROMPT)
    return child.before


def test_generate_tells_a_story(record_property) -> None:
    began = time.monotonic()
    child = start("generate", "Once upon a time", "--model", "tiny")
    child.expect("there was")
    record_property("took", f"generate: first words after {time.monotonic() - began:.1f} s")
    assert exit_status(child) == 0
    words = child.before.split()
    assert len(words) > 40
    assert words[-1][-1] in '.!?"'


def test_ctrl_c_ends_generate_and_leaves_the_terminal_as_it_was() -> None:
    child = start("generate", "Once upon a time", "--ignore-eos", "--max-tokens", "1900")
    before = termios.tcgetattr(child.child_fd)
    child.expect("there was")
    child.sendintr()
    assert exit_status(child) == 130
    assert "Traceback" not in child.before
    assert termios.tcgetattr(child.child_fd) == before


def test_chat_answers_and_remembers_nothing_after_reset(chat) -> None:
    assert "1, 2, 3, 4, 5" in ask(chat, "Count from 1 to 5.")
    assert "forgotten" in ask(chat, "/reset")
    chat.sendline("/quit")
    assert exit_status(chat) == 0


def test_ctrl_c_stops_an_answer_and_the_next_one_comes(chat) -> None:
    at_prompt = termios.tcgetattr(chat.child_fd)
    chat.sendline("Count from 1 to 60.")
    chat.expect("1, 2, 3")
    chat.sendintr()
    chat.expect("stopped")
    chat.expect(PROMPT)
    assert "60" not in chat.before
    assert termios.tcgetattr(chat.child_fd) == at_prompt
    assert "7, 8, 9" in ask(chat, "Count from 7 to 9.")
    chat.sendintr()
    assert exit_status(chat) == 0
    assert "Traceback" not in chat.before


def test_ctrl_d_ends_the_chat(chat) -> None:
    chat.sendeof()
    assert exit_status(chat) == 0
