(() => {
  "use strict";
  // The page is whole without this script: it adds sorting, a search and a time zone.
  const UNITS = {ms: 1e-3, s: 1, min: 60, h: 3600, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15};
  const amount = (cell) => {
    const found = cell.textContent.replace(/(\d)[\u202f\u00a0](?=\d)/g, "$1").match(/(-?\d[\d.]*)\s*(ms|min|[shkMGTP])?B?\b/);
    return found ? parseFloat(found[1]) * (UNITS[found[2]] || 1) : -1;
  };
  const sort = (table, head) => {
    const column = head.cellIndex, isNumber = head.classList.contains("number");
    const sign = head.getAttribute("aria-sort") === (isNumber ? "descending" : "ascending") ? -1 : 1;
    const order = (a, b) => isNumber ? amount(b.cells[column]) - amount(a.cells[column])
      : a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", {numeric: true});
    const rows = [...table.tBodies[0].rows].sort((a, b) => sign * order(a, b));
    table.tBodies[0].append(...rows);
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", (sign > 0) === isNumber ? "descending" : "ascending");
  };
  for (const table of document.querySelectorAll("table")) {
    if (table.tBodies[0].rows.length < 2) continue;
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.textContent = head.textContent;
      button.addEventListener("click", () => sort(table, head));
      head.replaceChildren(button);
    }
  }

  const nav = document.querySelector("nav");
  const labelled = (text, control) => {
    const label = document.createElement("label");
    label.append(text + " ", control);
    nav.append(label);
    return control;
  };
  const search = labelled("Search", document.createElement("input"));
  search.type = "search";
  const opened = new Set();
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    for (const fold of opened) fold.open = false;
    opened.clear();
    for (const row of document.querySelectorAll("tbody tr")) {
      row.hidden = Boolean(wanted) && !row.textContent.toLowerCase().includes(wanted);
      if (!wanted || row.hidden) continue;
      for (let fold = row.closest("details"); fold; fold = fold.parentElement.closest("details")) {
        if (!fold.open) opened.add(fold);
        fold.open = true;
      }
    }
  });

  const zones = labelled("Times also in", document.createElement("select"));
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const zone of new Set(["UTC", own, ...Intl.supportedValuesOf("timeZone")])) zones.add(new Option(zone, zone));
  const TIME = /(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d+)?(?: to (?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d:\d\d)(?:\.\d+)?)? UTC/g;
  const texts = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (/:\d\d(\.\d+)? UTC/.test(walker.currentNode.data)) texts.push([walker.currentNode, walker.currentNode.data]);
  zones.addEventListener("change", () => {
    const format = Intl.DateTimeFormat("sv-SE", {timeZone: zones.value, dateStyle: "short", timeStyle: "medium"});
    const local = (day, time) => format.format(new Date(`${day}T${time}Z`));
    for (const [node, text] of texts) {
      node.data = zones.value === "UTC" ? text : text.replace(TIME, (whole, day, from, last, to) =>
        `${whole} (${local(day, from)}${to ? " to " + local(last || day, to) : ""} ${zones.value})`);
    }
  });
})();
