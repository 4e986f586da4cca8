"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const framed = "frame" in root.dataset;

  // Light or dark: as the system has it, until the reader chooses.
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  const help = () => {
    const box = byId("help");
    box.hidden = !box.hidden;
    byId("keys").setAttribute("aria-expanded", String(!box.hidden));
  };
  byId("keys").addEventListener("click", help);

  // Ranks.
  const picker = byId("rank");
  const show = (rank) => {
    for (const report of all(".report")) report.hidden = report.dataset.rank !== rank;
    if (picker) picker.value = rank;
  };
  if (picker) picker.addEventListener("change", () => show(picker.value));

  // A link opens what its target is folded into.
  const reveal = (id) => {
    const target = id && byId(id);
    if (!target) return;
    const report = target.closest(".report");
    if (report && report.hidden) show(report.dataset.rank);
    for (let at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
      if (at.classList.contains("filtered")) at.classList.remove("filtered"), (at.hidden = false);
    }
    const own = target.querySelector(":scope > td > details");
    if (own) own.open = true;
    target.focus({ preventScroll: true });
    const tall = target.tagName === "SECTION" || target.offsetHeight > innerHeight / 2;
    target.scrollIntoView({ block: tall ? "start" : "center" });
  };
  const hash = () => decodeURIComponent(location.hash.slice(1));
  addEventListener("hashchange", () => reveal(hash()));
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link) return;
    const id = link.getAttribute("href").slice(1);
    if (framed) event.preventDefault();
    if (framed || hash() === id) reveal(id);
  });

  // Sorting: figures from the largest on at the first click, names from A on.
  const value = (row, column) => {
    const cell = row.cells[column];
    const exact = cell.dataset.v;
    const text = exact === undefined ? cell.textContent.trim() : exact;
    return text !== "" && isFinite(text) ? Number(text) : text;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  for (const button of all("table.sort th button")) {
    button.addEventListener("click", () => {
      const header = button.parentElement;
      const body = header.closest("table").tBodies[0];
      const column = header.cellIndex;
      const rows = [...body.rows].map((row) => [value(row, column), row]);
      const figures = rows.some(([found]) => typeof found === "number");
      const before = header.getAttribute("aria-sort");
      const up = before ? before === "descending" : !figures;
      for (const other of all("th", header.parentElement)) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", up ? "ascending" : "descending");
      const known = rows.filter(([found]) => found !== "");
      known.sort((a, b) => (up ? compare(a[0], b[0]) : compare(b[0], a[0])));
      const unknown = rows.filter(([found]) => found === ""); // last, whichever way
      body.append(...[...known, ...unknown].map(([, row]) => row));
    });
  }

  // Filters.
  for (const input of all("input[data-filter]")) {
    const rows = [...byId(input.dataset.filter).tBodies[0].rows];
    const output = document.querySelector(`output[data-count="${input.dataset.filter}"]`);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      let count = 0;
      for (const row of rows) {
        const hit = row.textContent.toLowerCase().includes(wanted);
        row.hidden = !hit;
        row.classList.toggle("filtered", !hit);
        count += hit;
      }
      output.textContent = wanted ? `${count} of ${rows.length} rows` : `${rows.length} rows`;
    });
  }
  for (const box of all("input[data-only]"))
    box.addEventListener("change", () =>
      byId(box.dataset.only).classList.toggle("only", box.checked));

  // Keys.
  const step = (way) => {
    const lines = all(".report:not([hidden]) .l:is(.B,.R,.E)");
    if (!lines.length) return;
    const at = lines.indexOf(document.activeElement.closest(".l"));
    const next = at < 0 ? (way > 0 ? 0 : lines.length - 1) : (at + way + lines.length) % lines.length;
    reveal(lines[next].id);
  };
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
    else if (event.key === "?") help();
    else if (event.key === "/") {
      const input = document.querySelector(".report:not([hidden]) input[data-filter]");
      if (input) event.preventDefault(), input.focus();
    } else if (event.key === "Escape" && document.activeElement.closest(".l"))
      document.activeElement.blur();
  });

  // On paper everything of the source is open.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all(".report:not([hidden]) details.file:not([open])");
    for (const file of folded) file.open = true;
  });
  addEventListener("afterprint", () => {
    for (const file of folded) file.open = false;
  });

  if (location.hash) reveal(hash());
})();
