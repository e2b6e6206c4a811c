"""An intervention on the terminal, for reading.

Everything shown was written by a model or comes from a data set: it is printed as text, never as markup, and
characters that could steer a terminal are written out as escapes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from trl_mentor.records import (
    Attempt,
    Call,
    Cause,
    CollapsedGroup,
    Draft,
    Guidance,
    HintOrigin,
    Intervention,
    Quality,
    RerollOutcome,
    Usage,
    VerdictSource,
)

_BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reorder the text around them, so that it reads as something else."""

_ORIGINS = {
    HintOrigin.ACCEPTED: ("accepted: a draft was judged HIGH", "green"),
    HintOrigin.FALLBACK: ("fallback: no draft was accepted, this is the fixed safe hint", "yellow"),
    HintOrigin.FORMAT: ("format: the fixed hint about the form of the answer, the mentor was not asked", "yellow"),
    HintOrigin.NOT_ASKED: ("not asked: no hint, the group is left as it is", "yellow"),
    HintOrigin.FAILED: ("failed: no hint, the group would be left as it is", "red"),
    HintOrigin.DROPPED: ("dropped: the group left the full queue before its turn", "red"),
}
_CAUSES = {
    Cause.CUT_OFF: "cut off: every completion ran into the length limit",
    Cause.FORMAT: "format: the form of the answer failed",
    Cause.DUPLICATES: "duplicates: all completions are the same",
    Cause.UNSCORABLE: "unscorable: no completion could be scored",
    Cause.VERIFIER_ERROR: "verifier error: the completions could not be judged",
    Cause.KNOWLEDGE: "knowledge: there is something to learn",
}
_GRADERS = {
    VerdictSource.RULES: "by a rule, the judge was not asked",
    VerdictSource.JUDGE: "by the judge",
    VerdictSource.UNREADABLE: "the judge's reply could not be read",
    VerdictSource.SKIPPED: "no judge in this ablation",
}
_OUTCOMES = {
    RerollOutcome.RESCUED: "rescued: some completions succeed under the hint, some fail, so they have an advantage",
    RerollOutcome.HINT_SATURATED: "hint-saturated: all succeed under the hint",
    RerollOutcome.STILL_COLLAPSED: "still collapsed: none succeeds, not even under the hint",
    RerollOutcome.SKIPPED: "skipped: the group was not re-rolled",
    RerollOutcome.ANOTHER_ROUND: "another round: the group was re-rolled once more",
}


def show_intervention(intervention: Intervention, console: Console) -> None:
    """Print one intervention from the failed attempts to the new rewards."""
    title = f"Step {intervention.step}, group {intervention.group.index}, strategy {intervention.strategy}"
    title += f", round {intervention.round}" if intervention.round > 1 else ""
    console.rule(Text(visible(title)))
    _show_group(intervention.group, console)
    group = intervention.group
    cause: list[RenderableType] = [Text(_CAUSES[group.cause], style="bold")]
    console.print(_panel("Cause", [*cause, _text(group.cause_detail)] if group.cause_detail else cause))
    if intervention.guidance is not None:
        _show_guidance(intervention.guidance, console)
    parts: list[RenderableType] = [Text(_OUTCOMES[intervention.outcome], style="bold")]
    for number, text in enumerate(intervention.completions):
        success = intervention.successes[number] if number < len(intervention.successes) else None
        parts += [Text(), Text(f"completion {number + 1}, success {_number(success)}", style="dim"), _text(text)]
    console.print(_panel(f"Re-roll, {intervention.reroll_tokens} completion tokens", parts))


def show_guidance(group: CollapsedGroup, guidance: Guidance, console: Console) -> None:
    """Print what the mentor made of one collapsed group: diagnosis, every draft with its critique, hint, calls."""
    _show_group(group, console)
    _show_guidance(guidance, console)


def _show_group(group: CollapsedGroup, console: Console) -> None:
    parts: list[RenderableType] = [_text(group.question)]
    if group.answer is not None:
        parts += [Text(), Text("reference answer", style="dim"), _text(group.answer)]
    console.print(_panel("Question", parts))
    for number, attempt in enumerate(group.attempts, 1):
        said: list[RenderableType] = [_text(attempt.text)]
        if attempt.feedback:
            said += [Text(), Text("the verifier", style="dim"), _text(attempt.feedback)]
        console.print(_panel(_attempt_title(number, attempt), said))


def _show_guidance(guidance: Guidance, console: Console) -> None:
    if guidance.diagnosis:
        console.print(_panel("Diagnosis", [_text(f"- {keyword}") for keyword in guidance.diagnosis]))
    for draft in guidance.drafts:
        console.print(_draft_panel(draft))
    label, style = _ORIGINS[guidance.origin]
    parts: list[RenderableType] = [] if guidance.hint is None else [_text(guidance.hint)]
    if guidance.reason:
        parts.append(_text(f"reason: {guidance.reason}"))
    console.print(_panel(f"Hint, {label}", parts, style=style))
    if guidance.calls:
        console.print(_calls_table(guidance.calls, guidance.seconds))


def _attempt_title(number: int, attempt: Attempt) -> str:
    cut = ", cut off at the token limit" if attempt.truncated else ""
    reward = "" if attempt.reward is None else f", success {_number(attempt.reward)}"
    return f"Failed attempt {number}{reward}{cut}"


def _draft_panel(draft: Draft) -> Panel:
    title = f"Draft of attempt {draft.attempt} by {draft.role}"
    if draft.verdict is None:
        return _panel(f"{title}: never judged", [_text(draft.text)])
    verdict = draft.verdict
    parts: list[RenderableType] = [_text(draft.text)]
    if verdict.critique:
        parts += [Text(), Text("critique", style="dim"), _text(verdict.critique)]
    style = "green" if verdict.quality is Quality.HIGH else "yellow"
    return _panel(f"{title}: {verdict.quality}, {_GRADERS[verdict.source]}", parts, style=style)


def _calls_table(calls: Sequence[Call], seconds: float) -> Table:
    table = Table(title=f"{len(calls)} calls, {seconds:.1f} s in all", title_justify="left")
    for name in ("agent", "prompt tokens", "completion tokens", "seconds"):
        table.add_column(name, justify="left" if name == "agent" else "right")
    table.add_column("error")
    for call in calls:
        note = "replayed from the cache" if call.replayed else call.error or ""
        table.add_row(str(call.role), *_amounts(call.usage, call.seconds), _text(note))
    asked = [call for call in calls if not call.replayed]
    total = Usage(sum(c.usage.prompt_tokens for c in asked), sum(c.usage.completion_tokens for c in asked))
    table.add_section()
    table.add_row("all", *_amounts(total, sum(call.seconds for call in calls)), "")
    return table


def _amounts(usage: Usage, seconds: float) -> tuple[str, str, str]:
    return str(usage.prompt_tokens), str(usage.completion_tokens), f"{seconds:.2f}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"


def _panel(title: str, parts: Sequence[RenderableType], *, style: str = "none") -> Panel:
    return Panel(Group(*parts), title=Text(visible(title)), title_align="left", border_style=style)


def _text(text: str) -> Text:
    return Text(visible(text))


def visible(text: str) -> str:
    """`text` with control characters, text reordering and lone surrogates written out as escapes."""
    return "".join(
        _escaped(char) if _steers_terminal(char) else char for char in text.replace("\r\n", "\n").expandtabs(4)
    )


def _escaped(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 127 else f"\\x{ord(char):02x}"


def _steers_terminal(char: str) -> bool:
    return char != "\n" and (unicodedata.category(char) in {"Cc", "Cs"} or char in _BIDI)
