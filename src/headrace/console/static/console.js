// Times in the reader's zone, with UTC on hover; the keys / and ?.
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
  const showAll = (root) => {
    if (root.nodeType !== Node.ELEMENT_NODE) return;
    if (root.matches("time[datetime]")) show(root);
    root.querySelectorAll("time[datetime]").forEach(show);
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
