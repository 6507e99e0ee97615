"""The dialogs that make a token: a new one with all that `headrace token create` offers, or one in place of another.

The text of a token is shown once, and is in no page before or after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from nicegui import ui

from headrace.console.view import parts, text
from headrace.console.view.visit import Visit
from headrace.core.reports.descriptions import TokenDescription
from headrace.core.rights import ALL, Right

_UNITS: Final = {60: "minutes", 3_600: "hours", 86_400: "days"}
_KINDS: Final = {"some": "Some rights", "full": "Full access"}
# What a right allows, and the pattern that stands there at first.
_RIGHTS: Final = {
    Right.READ: ("May read these topics, and create their groups", "*"),
    Right.PUBLISH: ("May publish to these topics", ""),
    Right.MANAGE: ("May create, alter and delete these topics, and move their groups", ""),
}


@dataclass
class _Duration:
    """A number and its unit; no number is no end."""

    number: ui.number
    unit: ui.select

    @classmethod
    def drawn(cls, label: str, value: float | None, unit: int) -> _Duration:
        with ui.element("div").classes("hr-bar").style("flex-wrap: nowrap"):
            number = ui.number(label, value=value, min=0, precision=3).props("outlined dense").classes("hr-grow")
            choice = ui.select(_UNITS, value=unit).props("outlined dense options-dense aria-label=Unit")
            return cls(number, choice.style("width: 120px; flex: none"))

    @property
    def seconds(self) -> float | None:
        return float(self.number.value) * self.unit.value if self.number.value is not None else None


async def create(visit: Visit, is_first: bool) -> bool:
    """Ask for name, rights, limits and expiry, create a token and show it; whether one was made."""
    with ui.dialog() as dialog, ui.card().classes("hr-dialog"):
        ui.label("Create token").classes("hr-title")
        grace = None
        if is_first:
            ui.label("It is the first one: every caller without a token is refused from then on.").classes("hr-warn")
            grace = _Duration.drawn("Refuse them only after (empty: at once)", None, 60)
        name = ui.input("Name of its user").props("outlined dense autofocus maxlength=255").classes("full-width")
        kind = ui.toggle(_KINDS, value="some").props("dense unelevated no-caps padding='4px 12px'")
        explanation = ui.label("Everything, on all topics, tokens and the server.").classes("hr-muted hr-small")
        explanation.bind_visibility_from(kind, "value", lambda value: value == "full")
        with ui.element("div").classes("hr-fields").bind_visibility_from(kind, "value", lambda value: value == "some"):
            ui.label("Patterns, one a line; * stands for any characters.").classes("hr-muted hr-small")
            rights = {right: _lines(label, value) for right, (label, value) in _RIGHTS.items()}
            groups = _lines("Only with these groups (empty: all)", "")
            producers = _lines("Only with these producer ids (empty: all)", "")
            forward = ui.checkbox("Commits of Kafka's clients must not move groups back")
        life = _Duration.drawn("Expires after (empty: never)", 90, 86_400)

        async def submit() -> None:
            is_full = kind.value == "full"
            patterns = {right: ["*"] if is_full else _listed(field) for right, field in rights.items()}
            grants = [(pattern, [right.value]) for right, given in patterns.items() for pattern in given]
            limits = (ALL, ALL) if is_full else (_listed(groups) or ALL, _listed(producers) or ALL)
            forward_only = bool(forward.value) and not is_full
            grace_seconds = None if grace is None else grace.seconds
            with visit.reporting():
                user = (name.value or "").strip()
                made = await visit.client.create_token(user, grants, *limits, life.seconds, forward_only, grace_seconds)
                dialog.submit(made.text)

        _buttons(dialog, "Create", submit)
    return await _shown_once(dialog)


async def rotate(visit: Visit, token: TokenDescription) -> bool:
    """Ask how long the old token stays valid, make the new one and show it; whether one was made."""
    with ui.dialog() as dialog, ui.card().classes("hr-dialog"):
        ui.label(f"Rotate the token of {text.visible(token.name)}").classes("hr-title")
        ui.label("A new token with the same rights. Distribute it while both are valid.").classes("hr-muted")
        keep = _Duration.drawn("The old one stays valid for", 1, 3_600)
        life = _Duration.drawn("The new one expires after (empty: as the old one)", None, 86_400)

        async def submit() -> None:
            with visit.reporting():
                made = await visit.client.rotate_token(token.id, keep.seconds or 0.0, life.seconds)
                dialog.submit(made.text)

        _buttons(dialog, "Rotate", submit)
    return await _shown_once(dialog)


def _lines(label: str, value: str) -> ui.textarea:
    field = ui.textarea(label, value=value).props("outlined dense autogrow rows=1 input-class=hr-mono")
    return field.classes("full-width")


def _listed(field: ui.textarea) -> list[str]:
    return [line.strip() for line in (field.value or "").splitlines() if line.strip()]


def _buttons(dialog: ui.dialog, action: str, submit: Any) -> None:
    with ui.element("div").classes("hr-bar"):
        ui.space()
        ui.button("Cancel", on_click=dialog.close).props("flat color=secondary")
        ui.button(action, on_click=submit).props("unelevated")


async def _shown_once(dialog: ui.dialog) -> bool:
    """Wait for the token that a dialog makes, and show it; whether one was made."""
    made: str | None = await parts.answer_of(dialog)
    if not made:
        return False
    with ui.dialog().props("persistent") as shown, ui.card().classes("hr-dialog"):
        ui.label("Save this token now").classes("hr-title")
        ui.label("It is not stored and cannot be shown again. Pass it as HEADRACE_TOKEN.").classes("hr-muted")
        parts.command(made)
        ui.button("I have saved it", on_click=shown.close).props("unelevated")
    await parts.answer_of(shown)
    return True
