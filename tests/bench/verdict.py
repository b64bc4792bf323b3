"""How a measurement stands to its limit, in a word: a timing fails no test."""


def met(is_met: bool) -> str:
    """The word that follows a limit."""
    return "met" if is_met else "MISSED"
