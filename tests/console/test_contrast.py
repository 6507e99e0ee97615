"""All text of the console is readable: a contrast of 4.5 to 1 as WCAG 2 asks for, of 3 to 1 where it is large."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Site, Visit

PAGES = (
    "/",
    "/topics",
    "/topic?name=orders&message=0-1",
    "/topic?name=orders&tab=settings",
    "/topic?name=orders&tab=partitions",
    "/group?topic=orders&name=billing",
    "/pipelines",
    "/access",
    "/server",
)
# Each text with the colours that it has on the screen; what is disabled may be pale, and icons are no text.
MEASURE = """() => {
    const parsed = (text) => {
        const found = (text.match(/[\\d.]+/g) || []).map(Number);
        return text.startsWith("color(srgb") ? [...found.slice(0, 3).map((part) => part * 255), found[3] ?? 1]
            : [found[0], found[1], found[2], found[3] ?? 1];
    };
    const over = (top, below) => top.slice(0, 3).map((part, at) => part * top[3] + below[at] * (1 - top[3]));
    const ground = (element) => {
        const layers = [];
        for (let at = element; at; at = at.parentElement) layers.push(parsed(getComputedStyle(at).backgroundColor));
        return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
    };
    const light = (colour) => {
        const [r, g, b] = colour.map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92
            : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const bad = [];
    for (const element of document.querySelectorAll("body *")) {
        const isText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!isText || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        if (element.closest(".q-icon, .material-icons, .disabled, [disabled], script, style, canvas")) continue;
        const below = ground(element), style = getComputedStyle(element);
        const [a, b] = [light(over(parsed(style.color), below)), light(below)].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
        const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
        if (ratio < (isLarge ? 3 : 4.5)) {
            bad.push(`${ratio.toFixed(2)} ${element.className} ${element.textContent.trim().slice(0, 40)}`);
        }
    }
    return [...new Set(bad)];
}"""


@pytest.fixture(scope="module", autouse=True)
def data(site: Site) -> None:
    """Something on every page."""
    site.client.create_topic("orders", partitions=2)
    with site.client.producer("orders", producer_id="till-7") as producer:
        for number in range(20):
            value = json.dumps({"order": number, "note": None, "paid": True, "customer": {"name": "ann"}})
            producer.send(value.encode(), key=b"ann", attributes={"kind": b"sale"})
    site.client.register_group("orders", "billing")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable(scheme: str, visit: Visit) -> None:
    pale: dict[str, list[str]] = {}
    for path in PAGES:
        page = visit(path, color_scheme=scheme)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if "message=" in path:
            expect(page.get_by_role("dialog").get_by_role("group", name="Tree")).to_be_visible()
        expect(page.locator(".hr-badge")).to_be_visible()
        found = page.evaluate(MEASURE)
        if found:
            pale[path] = found
        page.close()
    assert not pale, json.dumps(pale, indent=1)
