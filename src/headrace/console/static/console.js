// Times in the reader's zone, with UTC on hover; JSON as a folding tree; the keys / and ?.
(() => {
  const format = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    fractionalSecondDigits: 3, hourCycle: "h23",
  });
  const show = (element) => {
    const text = element.getAttribute("datetime");
    const time = text ? new Date(text) : null;
    const shown = time && !isNaN(time) ? format.format(time) : text || "";
    if (element.textContent !== shown) element.textContent = shown;
    element.title = time ? text.replace("T", " ").replace("Z", " UTC") : "";
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
  }).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["datetime"] });
  document.addEventListener("DOMContentLoaded", () => showAll(document.body));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    if (event.key === "/") {
      const search = document.querySelector(".hr-page-search input") || document.querySelector(".hr-search input");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "?") {
      const help = document.querySelector(".hr-help");
      if (help) { event.preventDefault(); help.click(); }
    }
  });
})();
