"""What tests read off an event log, straight from its rows."""

from tinyvllm_lab.engine.events import Kind


def events(log, kind: Kind) -> list[tuple[int, int, int]]:
    rows = log.as_array()
    return [tuple(row) for row in rows[rows[:, 0] == kind, 1:].tolist()]


def ends(log) -> dict[str, int]:
    """The reason of each request's end, by name."""
    return {log.requests[a]["id"]: reason for a, reason, _ in events(log, Kind.FINISH)}


def outputs(log) -> dict[str, list[int]]:
    """Output tokens of each request, by name."""
    tokens: dict[str, list[int]] = {}
    for request, token, _ in events(log, Kind.TOKEN):
        tokens.setdefault(log.requests[request]["id"], []).append(token)
    return tokens


def times_us(log) -> dict[str, list[int]]:
    """Arrival of each request, then the time of each of its tokens."""
    times, pending = {}, []
    for kind, a, *_ in log.as_array().tolist():
        if kind == Kind.TOKEN:
            pending.append(a)
        elif kind == Kind.STEP_END:
            for request in pending:
                row = log.requests[request]
                times.setdefault(row["id"], [row["arrival_us"]]).append(a)
            pending.clear()
    return times
