"""Access: tokens with their rights, expiry and last use; create, rotate and revoke them."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from headrace.console.pages import token_dialogs
from headrace.console.view import parts, text
from headrace.console.view.frame import Frame
from headrace.console.view.tables import LEVEL, MONO, TIME, Column, PagedTable, PageOrder, Row, cut
from headrace.console.view.visit import Visit
from headrace.core.reports.descriptions import TokenDescription
from headrace.core.rights import Grant

_ACTIONS = Column(
    "actions",
    "",
    slot='<q-td :props="props" auto-width class="text-no-wrap">'
    '<q-btn flat dense no-caps color="primary" label="Rotate" '
    "@click=\"() => $parent.$emit('rotate', props.row.key)\" />"
    '<q-btn flat dense no-caps color="negative" label="Revoke" '
    "@click=\"() => $parent.$emit('revoke', props.row.key)\" /></q-td>",
)
_COLUMNS = (
    Column("name", "Name", is_sortable=True, classes="hr-name"),
    Column("rights", "Rights", slot=MONO, classes="hr-name"),
    Column("expires", "Expires", is_sortable=True, slot=LEVEL),
    Column("used", "Last used", is_sortable=True, slot=TIME, is_wide=True),
    Column("created", "Created", is_sortable=True, slot=TIME, is_wide=True),
    Column("id", "Id", slot=MONO, is_wide=True),
    _ACTIONS,
)
_SOON_SECONDS = 7 * 86_400


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/access", "Access")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    may_manage = visit.session.may_administer
    page = _Tokens(visit) if may_manage else None
    with ui.element("div").classes("hr-bar"):
        parts.title("Access")
        ui.space()
        if page is not None:
            ui.button("Create token", icon="add", on_click=page.create).props("unelevated")
    with parts.panel("You"):
        caller = visit.session.caller
        parts.facts(
            {
                "Name": caller.name,
                "Token": caller.token_id or "none: this server needs no token",
                "Expires": (lambda: parts.moment(caller.expires_us)) if caller.expires_us is not None else "never",
                "Rights": rights_shown(caller.grants),
            }
        )
    if page is None:
        with (
            parts.panel(),
            parts.empty("Your token may not see other tokens", "That needs full access."),
        ):
            pass
        return
    page.draw()
    with visit.reporting(in_banner=True):
        await page.refresh()


class _Tokens:
    """The table of tokens and its dialogs."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._tokens: list[TokenDescription] = []

    def draw(self) -> None:
        """Draw the table."""
        self._table = PagedTable(_COLUMNS, self._load, sort="name")
        self._table.table.on("rotate", self._rotate)
        self._table.table.on("revoke", self._revoke)
        self._nothing = ui.element("div").classes("full-width")

    async def refresh(self) -> None:
        """List the tokens again."""
        self._tokens = await self._visit.client.list_tokens()
        await self._table.refresh()
        self._table.table.set_visibility(bool(self._tokens))
        self._nothing.clear()
        if not self._tokens:
            advice = (
                "Everyone on this machine may do everything. As soon as there is one token, every caller needs one: "
                "make the first one an administrator."
            )
            with self._nothing, parts.panel(), parts.empty("No tokens", advice):
                parts.command("headrace token create admin")

    async def _load(self, order: PageOrder) -> tuple[list[Row], int]:
        values: dict[str, Any] = {
            "name": lambda token: token.name.casefold(),
            "expires": lambda token: token.expires_us or 1 << 62,
            "used": lambda token: token.used_us or 0,
            "created": lambda token: token.created_us,
        }
        shown = cut(self._tokens, order, values.get(order.sort, values["name"]))
        return [_row(token) for token in shown], len(self._tokens)

    async def create(self) -> None:
        """Make a token."""
        await self._refresh_if(await token_dialogs.create(self._visit, is_first=not self._tokens))

    async def _rotate(self, event: GenericEventArguments) -> None:
        token = self._find(event.args)
        if token is not None:
            await self._refresh_if(await token_dialogs.rotate(self._visit, token))

    async def _refresh_if(self, has_changed: bool) -> None:
        if has_changed:
            with self._visit.reporting():
                await self.refresh()

    def _find(self, token_id: object) -> TokenDescription | None:
        return next((each for each in self._tokens if each.id == token_id), None)

    async def _revoke(self, event: GenericEventArguments) -> None:
        token = self._find(event.args)
        if token is None:
            return
        losses = ["All calls with it fail within a second, running ones too."]
        if token.id == self._visit.session.caller.token_id:
            losses.append("It is your own token: you will be signed out.")
        if len(self._tokens) == 1:
            losses.append("It is the last token: everyone on the machine of the server may do everything then.")
        heading = f"Revoke the token of {text.visible(token.name)}?"
        if await parts.Confirmation(heading, losses, token.name, "Revoke").ask():
            with self._visit.reporting():
                await self._visit.client.revoke_token(token.id)
                ui.notify("The token was revoked", type="positive")
                await self.refresh()


def rights_shown(grants: tuple[Grant, ...]) -> str:
    """Rights by pattern, with what they are limited to."""
    shown = []
    for grant in grants:
        limits = [f"groups {', '.join(grant.groups)}"] if "*" not in grant.groups else []
        limits += [f"producers {', '.join(grant.producers)}"] if "*" not in grant.producers else []
        limits += ["forward only"] if grant.forward_only else []
        limited = f" ({'; '.join(limits)})" if limits else ""
        shown.append(f"{', '.join(sorted(grant.rights))} on {grant.pattern}{limited}")
    return text.visible("; ".join(shown))


def _row(token: TokenDescription) -> Row:
    left = None if token.expires_us is None else token.expires_us / 1e6 - time.time()
    expires = "never" if left is None else "expired" if left <= 0 else f"in {text.duration(left)}"
    level = "" if left is None or left > _SOON_SECONDS else "hr-bad" if left <= 0 else "hr-warn"
    return {
        "key": token.id,
        "id": token.id,
        "name": text.visible(token.name),
        "rights": rights_shown(token.grants),
        "expires": expires,
        "level": level,
        "used": "" if token.used_us is None else text.iso(token.used_us),
        "created": text.iso(token.created_us),
    }
