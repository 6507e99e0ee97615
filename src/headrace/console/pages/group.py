"""A group: how far it is in each partition, its members, its lag over time; reset and delete."""

from __future__ import annotations

from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from headrace.console.pages.group_reset import ResetDialog
from headrace.console.view import parts, text
from headrace.console.view.charts import COLORS, Chart, range_toggle
from headrace.console.view.frame import Frame
from headrace.console.view.tables import MONO, TIME, Column, PagedTable, PageOrder, Row, ShortTable, cut
from headrace.console.view.visit import Visit
from headrace.core.errors import NotFound
from headrace.core.reports.clients import ClientDescription, ClientMembership
from headrace.core.reports.descriptions import GroupDescription
from headrace.core.rights import Right
from headrace.core.text import counted

_PARTITIONS = (
    Column("partition", "Partition", is_sortable=True),
    Column("committed", "Committed", is_number=True, is_wide=True),
    Column("end", "End", is_number=True, is_wide=True),
    Column("lag", "Lag", is_number=True, is_sortable=True),
    Column("age", "Oldest unread", is_number=True, is_sortable=True),
    Column("consumer", "Member", slot=MONO, classes="hr-name"),
)
_MEMBERS = (
    Column("name", "Member", slot=MONO, classes="hr-name"),
    Column("partitions", "Partitions", classes="hr-name"),
    Column("lag", "Lag", is_number=True),
    Column("client", "Client", classes="hr-name"),
    Column("address", "Address", slot=MONO, is_wide=True),
    Column("polled", "Last poll", slot=TIME),
)
_REMOVE = Column(
    "remove",
    "",
    slot='<q-td :props="props" auto-width><q-btn flat dense no-caps color="negative" label="Remove" '
    "@click=\"() => $parent.$emit('remove', props.row.key)\" /></q-td>",
)
_PARTITIONS_NAMED = 24


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/group", "Group")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    topic, name = visit.query.get("topic", ""), visit.query.get("name", "")
    group: GroupDescription | None = None
    with visit.reporting(in_banner=True):
        try:
            group = await visit.client.describe_group(topic, name)
        except NotFound as error:
            with parts.panel(), parts.empty("There is no such group", text.visible(str(error))):
                ui.link("All groups", "/groups")
            return
    if group is not None:
        page = _Group(visit, group)
        await page.show()
        visit.on_sample(page.refresh)


class _Group:
    """The parts of the page that change."""

    def __init__(self, visit: Visit, group: GroupDescription) -> None:
        self._visit = visit
        self._group = group
        # By member the client that it is, where the server knows that.
        self._clients: dict[str, tuple[ClientDescription, ClientMembership]] = {}
        may_manage = visit.session.may(Right.MANAGE, group.topic, group.name)
        with ui.element("div").classes("hr-bar"):
            with ui.element("div").classes("hr-grow"):
                with ui.element("div").classes("hr-small hr-path"):
                    ui.link("Groups", "/groups")
                    ui.label("of").classes("hr-muted")
                    ui.link(text.visible(group.topic), text.topic_page(group.topic, "groups"))
                parts.title(group.name)
            if may_manage:
                ui.button("Reset offsets", icon="restart_alt", on_click=self._reset).props("unelevated")
                ui.button("Delete", icon="delete", on_click=self._delete).props("flat color=negative")
        with ui.element("div").classes("hr-cards"):
            self._lag, self._age = parts.Card("Lag"), parts.Card("Oldest unread message")
            self._members, self._kind = parts.Card("Members"), parts.Card("Retention")
        with parts.panel():
            with ui.element("div").classes("hr-bar"):
                ui.label("Lag in messages").classes("hr-panel-title")
                ui.space()
                self._range = range_toggle()
            self._chart = Chart("count")
            ui.label("In the partitions that lag most").classes("hr-panel-title")
            self._partition_chart = Chart("count")
        self._range.on_value_change(self._show_chart)
        with ui.element("div").classes("hr-grid"):
            with ui.element("div"):
                ui.label("Partitions").classes("hr-panel-title q-mb-sm")
                self._partitions = PagedTable(_PARTITIONS, self._load, sort="lag", descending=True, per_page=25)
            with ui.element("div"):
                ui.label("Members").classes("hr-panel-title q-mb-sm")
                self._member_table = ShortTable([*_MEMBERS, _REMOVE] if may_manage else _MEMBERS)
                self._member_table.table.on("remove", self._remove)
                self._no_members = ui.element("div").classes("hr-panel")
                with self._no_members:
                    ui.label("Nobody reads for this group now.").classes("hr-muted")
                    parts.command(f"headrace consume {text.shell(group.topic)} --group {text.shell(group.name)}")

    async def refresh(self) -> None:
        """Describe the group again."""
        with self._visit.reporting(in_banner=True):
            self._group = await self._visit.client.describe_group(self._group.topic, self._group.name)
            await self.show()

    async def show(self) -> None:
        """Show the group as it was last described."""
        group, place = self._group, (self._group.topic.casefold(), self._group.name)
        with self._visit.reporting(in_banner=True):
            self._clients = {
                each.member: (client, each)
                for client in await self._visit.client.list_clients()
                for each in client.members
                if (each.topic.casefold(), each.group) == place
            }
        self._lag.set(text.count(group.lag_messages), "messages")
        self._age.set(text.duration(group.lag_seconds) if group.lag_messages else "–")
        fixed = "" if group.consumers is None else f"of {group.consumers} by index"
        self._members.set(text.count(len(group.members)), fixed)
        kept = "Messages stay until it has read them" if group.important else "Does not wait for this group"
        self._kind.set("Waits" if group.important else "By age and size", kept)
        self._member_table.show([self._member_row(name) for name in sorted(group.members)])
        self._member_table.table.set_visibility(bool(group.members))
        self._no_members.set_visibility(not group.members)
        self._show_chart()
        await self._partitions.refresh()

    def _member_row(self, name: str) -> Row:
        owned = self._group.members[name]
        named = ", ".join(map(str, owned[:_PARTITIONS_NAMED])) + (" …" if len(owned) > _PARTITIONS_NAMED else "")
        lag = sum(self._group.progress[each].lag_messages for each in owned if each in self._group.progress)
        client, member = self._clients.get(name, (None, None))
        said = "–" if client is None else f"{client.identity.client_id or '–'} on {client.identity.place or '–'}"
        return {
            "key": name,
            "name": text.visible(name),
            "partitions": named or "none",
            "lag": text.count(lag),
            "client": text.visible(said),
            "address": "–" if client is None else text.visible(client.address),
            "polled": "" if member is None or member.polled_us is None else text.iso(member.polled_us),
        }

    def _show_chart(self) -> None:
        history, seconds = self._visit.history, float(self._range.value)
        if history.last is not None:
            points = history.points([("lag", self._group.topic, self._group.name)], seconds)
            self._chart.show({"lag": points}, seconds, history.last.time)
            name, progress = (self._group.topic, self._group.name), self._group.progress
            most = sorted(progress, key=lambda each: (-progress[each].lag_messages, each))[: len(COLORS)]
            lines = {f"partition {each}": history.points([("lag", *name, str(each))], seconds) for each in sorted(most)}
            self._partition_chart.show(lines, seconds, history.last.time)

    async def _load(self, order: PageOrder) -> tuple[list[Row], int]:
        progress = self._group.progress
        values: dict[str, Any] = {
            "partition": lambda each: each,
            "lag": lambda each: progress[each].lag_messages,
            "age": lambda each: progress[each].lag_seconds,
        }
        shown = cut(list(progress), order, values.get(order.sort, values["partition"]))
        return [self._partition_row(each) for each in shown], len(progress)

    def _partition_row(self, partition: int) -> Row:
        state = self._group.progress[partition]
        return {
            "key": partition,
            "partition": str(partition),
            "committed": text.count(state.committed),
            "end": text.count(state.end),
            "lag": text.count(state.lag_messages),
            "age": text.duration(state.lag_seconds) if state.lag_messages else "–",
            "consumer": text.visible(state.consumer or "–"),
        }

    async def _reset(self) -> None:
        if await ResetDialog(self._visit, self._group).ask():
            await self.refresh()

    async def _remove(self, event: GenericEventArguments) -> None:
        member = str(event.args)
        losses = ["The other members get its partitions at once.", "If it still runs, it joins again."]
        if await parts.Confirmation(f"Remove {text.visible(member)}?", losses, member, "Remove").ask():
            with self._visit.reporting():
                await self._visit.client.remove_member(self._group.topic, self._group.name, member)
                ui.notify("The member was removed", type="positive")
                await self.refresh()

    async def _delete(self) -> None:
        group = self._group
        losses = [
            f"The group forgets how far it has read {text.visible(group.topic)}. No message is deleted.",
            f"{counted(len(group.members), 'member')} will be refused." if group.members else "It has no members.",
        ]
        question = parts.Confirmation(f"Delete group {text.visible(group.name)}?", losses, group.name, "Delete")
        if await question.ask():
            with self._visit.reporting():
                await self._visit.client.delete_group(group.topic, group.name)
                ui.navigate.to("/groups")
