// Times in the reader's zone, with UTC on hover; JSON as a folding tree; rows and pages by keyboard.
(() => {
  const format = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    fractionalSecondDigits: 3, hourCycle: "h23",
  });
  const hours = new Intl.DateTimeFormat(undefined, {
    hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23",
  });
  const days = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "2-digit" });
  const show = (element) => {
    const text = element.getAttribute("datetime");
    const time = text ? new Date(text) : null;
    const form = element.closest(".hr-rows") ? hours : format;
    const shown = time && !isNaN(time) ? form.format(time) : text || "";
    if (element.textContent !== shown) element.textContent = shown;
    element.title = time ? text.replace("T", " ").replace("Z", " UTC") : "";
  };
  // In a list of messages the date stands before the first message of each day but today.
  const showDays = (table) => {
    let before = days.format(new Date());
    for (const element of table.querySelectorAll("time[datetime]")) {
      const time = new Date(element.getAttribute("datetime"));
      const day = isNaN(time) ? before : days.format(time);
      const wanted = day === before ? null : day;
      if (element.getAttribute("data-day") !== wanted) {
        if (wanted) element.setAttribute("data-day", wanted); else element.removeAttribute("data-day");
      }
      before = day;
    }
  };
  let isDue = false;
  const showDaysSoon = () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => { isDue = false; document.querySelectorAll(".hr-rows").forEach(showDays); });
  };
  // A tree is what headrace.console.messages.tree says. All of it is text: nothing here parses markup.
  const KINDS = { s: "hr-text", n: "hr-digits", w: "hr-word" };
  const made = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };
  const drawNode = (name, node, depth) => {
    const [kind, shown, inside] = node;
    const isFolding = inside && shown > 0;
    const line = made(isFolding ? "details" : "div", undefined, "hr-node");
    const head = isFolding ? line.appendChild(made("summary")) : line;
    if (name !== undefined) head.append(made("span", name, "hr-field"), ": ");
    if (!isFolding) {
      head.append(made("span", inside ? (kind === "{" ? "{}" : "[]") : shown, KINDS[kind]));
      return line;
    }
    const noun = (kind === "{" ? "field" : "item") + (shown === 1 ? "" : "s");
    head.append(kind === "{" ? "{…} " : "[…] ", made("span", `${shown.toLocaleString("en-US")} ${noun}`, "hr-muted"));
    const draw = () => {
      if (line.childElementCount > 1) return;
      const step = kind === "{" ? 2 : 1;
      for (let at = 0; at < inside.length; at += step) {
        line.append(drawNode(step === 2 ? inside[at] : undefined, inside[at + step - 1], depth + 1));
      }
      const left = shown - inside.length / step;
      if (left > 0) line.append(made("div", `… ${left.toLocaleString("en-US")} more: download the value`, "hr-muted"));
    };
    line.addEventListener("toggle", () => { if (line.open) draw(); });
    if (depth < 2 && shown <= 50) { line.open = true; draw(); }
    return line;
  };
  const drawTree = (element) => {
    const text = element.getAttribute("data-tree");
    if (text) element.replaceChildren(drawNode(undefined, JSON.parse(text), 0));
  };
  const showAll = (root) => {
    if (root.nodeType !== Node.ELEMENT_NODE) return;
    if (root.matches("time[datetime]")) show(root);
    if (root.matches("[data-tree]")) drawTree(root);
    root.querySelectorAll("time[datetime]").forEach(show);
    root.querySelectorAll("[data-tree]").forEach(drawTree);
  };
  new MutationObserver((changes) => {
    for (const change of changes) {
      if (change.type === "attributes") show(change.target);
      change.addedNodes.forEach(showAll);
    }
    showDaysSoon();
  }).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["datetime"] });
  document.addEventListener("DOMContentLoaded", () => showAll(document.body));
  // A list that follows a topic stops while the mouse is over a row, or a row was chosen by keyboard.
  const hold = () => {
    for (const table of document.querySelectorAll(".hr-rows")) {
      const isHeld = table.querySelector("tbody tr:hover, tbody tr:focus") !== null;
      if (isHeld !== (table.dataset.held === "yes")) {
        table.dataset.held = isHeld ? "yes" : "no";
        table.dispatchEvent(new CustomEvent("hold", { detail: isHeld }));
      }
    }
  };
  for (const kind of ["pointerover", "pointerout", "focusin", "focusout"]) {
    document.addEventListener(kind, () => requestAnimationFrame(hold));
  }
  const rowsOf = (table) => [...table.querySelectorAll("tbody tr")].filter((row) => row.querySelector("td"));
  const choose = (step) => {
    const at = document.activeElement && document.activeElement.closest(".hr-table tbody tr");
    const tables = [...document.querySelectorAll(".hr-table")].filter((table) => table.offsetParent && rowsOf(table).length);
    const table = at ? at.closest(".hr-table") : tables[0];
    if (!table) return false;
    const rows = rowsOf(table);
    const row = rows[at ? Math.min(rows.length - 1, Math.max(0, rows.indexOf(at) + step)) : step > 0 ? 0 : rows.length - 1];
    row.tabIndex = -1;
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
    return true;
  };
  const PAGES = { o: "/", t: "/topics", g: "/groups", p: "/pipelines", a: "/access", s: "/server" };
  let isGoing = false;
  const press = (selector) => {
    const found = document.querySelector(selector);
    if (found) found.click();
    return found !== null;
  };
  const onKey = (key) => {
    if (isGoing && PAGES[key]) { window.location.assign(PAGES[key]); return true; }
    isGoing = key === "g";
    const isOpen = document.querySelector(".q-dialog .q-card") !== null;
    if (isOpen) {
      if (key === "j") return press(".hr-side .hr-next");
      return key === "k" && press(".hr-side .hr-previous");
    }
    if (key === "j") return choose(1);
    if (key === "k") return choose(-1);
    if (key === "?") return press(".hr-help");
    if (key === "/") {
      const search = document.querySelector(".hr-page-search input") || document.querySelector(".hr-search input");
      if (search) { search.focus(); search.select(); }
      return search !== null;
    }
    const row = document.activeElement && document.activeElement.matches(".hr-table tbody tr") && document.activeElement;
    if (row && key === "Enter") {
      const link = row.closest(".hr-rows") ? row : row.querySelector("a[href]");
      if (link) link.click();
      return link !== null;
    }
    if (row && key === "Escape") { row.blur(); return true; }
    return false;
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest && event.target.closest("input, textarea, select, [contenteditable]");
    if (!field) {
      if (onKey(event.key)) event.preventDefault();
      return;
    }
    if (field.closest(".q-dialog, .q-menu")) return;
    if (event.key === "Escape") field.blur();
    // From a search straight into what it found.
    if (event.key === "ArrowDown" && field.closest(".hr-search, .hr-page-search") && choose(1)) event.preventDefault();
  });
})();
