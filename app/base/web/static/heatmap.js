// The heat map of a check: draws the picture as wide as the page, says what is under the pointer, and after a click
// leads to the canary and the run. Cells and their places come from /v1/checks/{slug}/heatmap, ranks from histories.
"use strict";

(() => {
  const host = document.getElementById("heatmap");
  const controls = document.getElementById("heatmap-controls");
  if (!host || !controls) return;
  const { plots } = window;
  const [cell, note] = ["cell", "note"].map((name) => document.getElementById(`heatmap-${name}`));
  const address = `${plots.root}/v1/checks/${encodeURIComponent(host.dataset.check)}`;
  const image = host.querySelector("img");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const WORDS = { ".": "healthy", "~": "degraded in some of these runs", "#": "degraded", "?": "not measured", " ": "not asked" };
  const histories = new Map();
  let shown = null;
  let rows = [];
  let at = null; // {row, column}
  let pinned = false; // it stays while the pointer goes to its links
  let wish = 0;

  const box = plots.make("div", "", { className: "heat-cell", hidden: true });
  const tip = plots.make("div", "", { className: "plot-tip", hidden: true });
  host.append(box, tip);
  host.tabIndex = 0;
  host.setAttribute("role", "application");
  controls.hidden = false;

  const wanted = () => {
    const data = new FormData(controls);
    const asked = { by: data.get("by"), columns: data.get("runs") ? "120" : "60", width: String(Math.max(240, Math.min(1600, host.clientWidth))) };
    if (data.get("runs")) asked.from = new Date(Date.now() - Number(data.get("runs")) * 1000).toISOString();
    if (host.dataset.version) asked.measures_version = host.dataset.version;
    return asked;
  };

  const load = async () => {
    const asked = wanted();
    const mine = ++wish;
    try {
      const found = await plots.ask(`${address}/heatmap`, asked);
      if (mine !== wish) return;
      shown = found;
      rows = found.groups.flatMap(({ name, canaries }) => canaries.map((canary) => ({ ...canary, group: name })));
      const scale = Math.min(2, Math.ceil(window.devicePixelRatio || 1));
      const until = found.columns.length ? { to: new Date().toISOString() } : {};
      image.closest("picture").querySelectorAll("source").forEach((source) => source.remove());
      image.height = found.layout.height;
      image.src = `${plots.root}/heatmap/${encodeURIComponent(host.dataset.check)}.png?${new URLSearchParams({ ...asked, ...until, scale, dark: dark.matches })}`;
      note.textContent = said(found);
      host.setAttribute("aria-label", `Heat map: ${rows.length} canaries in ${found.columns.length} columns. Arrow keys go from cell to cell, Enter opens the canary, R the run.`);
      pinned = false;
      go(null);
    } catch (error) {
      if (mine === wish) note.textContent = `The heat map could not be read: ${error.message}`;
    }
  };

  const said = ({ columns, left_out_canaries: gone, left_out_rows: least, is_cut: cut }) => {
    if (!columns.length) return "No run ended in this period.";
    const runs = columns.reduce((sum, one) => sum + one.runs, 0);
    const parts = [`${runs} ${runs === 1 ? "run" : "runs"} since ${plots.timeText(plots.seconds(columns[0].at))}.`];
    if (cut) parts.push("Earlier runs are not drawn: choose a shorter time.");
    if (least) parts.push(`${least.toLocaleString("en")} more rows are not drawn, those that were degraded least.`);
    if (gone) parts.push(`${gone} ${gone === 1 ? "canary" : "canaries"} of earlier runs ${gone === 1 ? "is" : "are"} not drawn.`);
    return parts.join(" ");
  };

  // --- what is under the pointer ---

  // Shows a cell; null = none.
  const go = (place) => {
    at = place;
    box.hidden = tip.hidden = !place;
    tip.classList.toggle("pinned", pinned && !!place);
    if (!place) return;
    const { row, column } = place;
    const { layout, columns } = shown;
    const { query, key, cells, group } = rows[row];
    const { at: begun, runs, first_run: first, last_run: last } = columns[column];
    const scale = host.clientWidth / layout.width;
    Object.assign(box.style, {
      left: `${(layout.left + column * layout.column) * scale}px`,
      top: `${layout.tops[row]}px`,
      width: `${layout.column * scale}px`,
      height: `${Math.max(layout.row, 3)}px`,
    });
    const run = runs === 1 ? `run ${first}` : `runs ${first} to ${last}`;
    const lines = [
      { text: query, strong: true },
      { text: `${key} · ${group.replaceAll("_", " ")}` },
      { text: [WORDS[cells[column]], rankIn(key, Number(last))].filter(Boolean).join(", ") },
      { text: `${run}, ${plots.timeText(plots.seconds(begun))}` },
    ];
    tip.replaceChildren(...lines.map(({ text, strong }) => plots.make(strong ? "strong" : "div", text)));
    const links = plots.make("div", "", { className: "buttons" });
    links.append(plots.make("a", "This canary", { href: canaryAddress(key) }), plots.make("a", `Run ${last}`, { href: runAddress(last) }));
    if (pinned) tip.append(links);
    const right = (layout.left + (column + 1) * layout.column) * scale;
    tip.style.left = `${right > host.clientWidth / 2 ? Math.max(0, layout.left * scale + column * layout.column * scale - tip.offsetWidth - 6) : right + 6}px`;
    tip.style.top = `${Math.max(0, Math.min(layout.tops[row] - 8, host.clientHeight - tip.offsetHeight))}px`;
    cell.textContent = lines.map(({ text }) => text).join(", ");
    if (!histories.has(key)) rankLater(key, place);
  };

  // The reciprocal rank of what held in a run says where the first expected chunk was.
  const rankIn = (key, run) => {
    const state = histories.get(key)?.find((one) => Number(one.first_run) <= run && (one.last_run === null || run <= Number(one.last_run)));
    const reciprocal = state?.measures.RR;
    if (reciprocal == null) return "";
    return reciprocal > 0 ? `rank ${Math.round(1 / reciprocal)}` : "expected chunk not found";
  };
  const rankLater = (key, place) => setTimeout(async () => {
    if (at !== place) return; // the pointer went on
    try {
      const { items } = await plots.ask(`${address}/canaries/${encodeURIComponent(key)}/history`, { limit: "500" });
      histories.set(key, items);
    } catch {
      histories.set(key, []); // the cell says what it was all the same
    }
    if (at === place) go(place);
  }, 150);

  const found = ({ clientX, clientY }) => {
    if (!shown || !rows.length) return null;
    const { left, top, width } = host.getBoundingClientRect();
    const { layout, columns } = shown;
    const scale = width / layout.width;
    const column = Math.floor(((clientX - left) / scale - layout.left) / layout.column);
    const y = clientY - top;
    const row = layout.tops.findLastIndex((one) => one <= y);
    return row >= 0 && y < layout.tops[row] + layout.row && column >= 0 && column < columns.length ? { row, column } : null;
  };
  const canaryAddress = (key) => `${plots.root}/checks/${encodeURIComponent(host.dataset.check)}/canaries/${encodeURIComponent(key)}`;
  const runAddress = (run) => `${plots.root}/runs/${encodeURIComponent(run)}${host.dataset.version ? `?measures_version=${encodeURIComponent(host.dataset.version)}` : ""}`;

  host.addEventListener("pointermove", (event) => {
    const place = found(event);
    if (!pinned && (place?.row !== at?.row || place?.column !== at?.column)) go(place);
  });
  host.addEventListener("pointerleave", () => !pinned && go(null));
  host.addEventListener("click", (event) => {
    if (tip.contains(event.target)) return;
    const place = found(event);
    pinned = !!place && !(pinned && place.row === at?.row && place.column === at?.column);
    go(place);
  });
  host.addEventListener("keydown", (event) => {
    if (!shown || !rows.length || event.target !== host) return;
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const step = steps[event.key];
    const within = (value, size) => Math.max(0, Math.min(size - 1, value));
    if (step) go(at ? { row: within(at.row + step[0], rows.length), column: within(at.column + step[1], shown.columns.length) } : { row: 0, column: shown.columns.length - 1 });
    else if (at && event.key === "Enter") location.assign(canaryAddress(rows[at.row].key));
    else if (at && event.key.toLowerCase() === "r") location.assign(runAddress(shown.columns[at.column].last_run));
    else if (at && event.key === "Escape") {
      pinned = false;
      go(null);
    } else return;
    event.preventDefault();
  });
  controls.addEventListener("change", load);
  controls.addEventListener("submit", (event) => event.preventDefault());
  dark.addEventListener("change", load);
  let width = host.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(host.clientWidth - width) < 8) return;
    width = host.clientWidth;
    load();
  }).observe(host);
  load();
})();
