// Draws the measures of a check over time from /v1/checks/{slug}/series, with a table that says the same.
"use strict";

(() => {
  const host = document.getElementById("chart");
  const controls = document.getElementById("chart-controls");
  if (!host || !controls || !window.uPlot) return;
  const note = document.getElementById("chart-note");
  const table = document.getElementById("chart-table");
  const HEIGHT = 280;
  const TABLE_POINTS = 20;
  let plot = null;
  let shown = null;
  let wish = 0;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const score = (value) => (value == null ? "–" : value.toFixed(3));
  const stamp = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

  const load = async () => {
    const chosen = new FormData(controls);
    const measures = chosen.get("measure") ? [chosen.get("measure")] : ["health_score", "coverage"];
    const range = controls.querySelector(`input[value="${CSS.escape(chosen.get("range"))}"]`);
    const until = new Date();
    const since = new Date(until - Number(range.dataset.seconds) * 1000);
    const mine = ++wish;
    remember(chosen);
    note.textContent = "Loading…";
    try {
      const found = await Promise.all(measures.map((measure) => series(measure, since, until)));
      if (mine !== wish) return; // somebody chose again in the meantime
      shown = { found, since, until };
      draw();
      fill(measures, found);
    } catch (error) {
      if (mine === wish) note.textContent = `The chart could not be drawn: ${error.message}`;
    }
  };

  const series = async (measure, since, until) => {
    const query = new URLSearchParams({ measure, from: since.toISOString(), to: until.toISOString(), points: "300" });
    if (host.dataset.version) query.set("measures_version", host.dataset.version);
    const response = await fetch(`/v1/checks/${encodeURIComponent(host.dataset.check)}/series?${query}`);
    const body = await response.json();
    if (!response.ok) throw new Error(body.detail || `HTTP ${response.status}`);
    return body;
  };

  const draw = () => {
    const { found, until } = shown;
    const since = start(shown);
    const single = found.length === 1;
    const tables = found.map(({ points }) => {
      const columns = [points.map((point) => Date.parse(point.at) / 1000), points.map((point) => point.mean)];
      if (single) columns.push(points.map((point) => point.min), points.map((point) => point.max));
      return columns;
    });
    const data = single ? tables[0] : uPlot.join(tables);
    const few = data[0].length <= 60;
    const inks = [colour("--first"), colour("--second")];
    const lines = found.map(({ measure }, place) => ({
      label: measure.replaceAll("_", " "),
      stroke: inks[place],
      width: 2,
      dash: place ? [7, 4] : undefined, // told apart without colour
      spanGaps: true,
      points: { show: few, size: 5, fill: inks[place] },
      value: (_, value) => score(value),
    }));
    const edge = { stroke: "transparent", points: { show: false }, value: (_, value) => score(value) };
    const bands = single ? [{ ...edge, label: "lowest" }, { ...edge, label: "highest" }] : [];
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const font = "12px system-ui, sans-serif";
    plot?.destroy();
    host.replaceChildren();
    plot = new uPlot(
      {
        width: host.clientWidth,
        height: HEIGHT,
        series: [{ label: "at", value: (_, at) => (at == null ? "–" : stamp.format(at * 1000)) }, ...lines, ...bands],
        bands: single ? [{ series: [3, 2], fill: `${inks[0]}30` }] : [],
        scales: {
          x: { min: since / 1000, max: until / 1000, range: (_, least, most) => zoomed(least, most, since, until) },
          y: { range: (_, least, most) => framed(least, most) },
        },
        axes: [
          { ...axis, font, values: CLOCK },
          { ...axis, font, size: 52, values: (_, splits) => splits.map((value) => Number(value.toFixed(3))) },
        ],
        hooks: { draw: [(drawn) => drawMarks(drawn, found[0].marks)] },
        legend: { live: true },
        cursor: { focus: { prox: 30 }, drag: { x: true, y: false } },
      },
      data,
      host,
    );
    const count = found.reduce((sum, { points }) => Math.max(sum, points.length), 0);
    const points = `${count} ${count === 1 ? "point" : "points"}`;
    const versions = found[0].marks.length;
    note.textContent = count
      ? `${points}${single && found[0].points.some((point) => point.runs > 1) ? ", each the mean of several runs with their lowest and highest" : ""}${
          versions ? `; dotted lines: the index version changed (${versions})` : ""
        }. Drag to zoom, double-click to zoom out.`
      : "No run in this period.";
    host.setAttribute("aria-label", `Chart of ${lines.map(({ label }) => label).join(" and ")}, ${points}; the table below holds the last ones`);
  };

  // Where nothing ran in the first half of a period, the chart begins with the first run, or two minutes ago.
  const start = ({ found, since, until }) => {
    const first = Math.min(...found.filter(({ points }) => points.length).map(({ points }) => Date.parse(points[0].at)));
    if (!Number.isFinite(first) || first - since < (until - since) / 2) return since;
    return new Date(Math.min(first - (until - first) * 0.03, until - 120_000));
  };

  // Hours and minutes as Europe and machines write them, and the date where the day changes.
  const CLOCK = [
    [86_400, "{D} {MMM}", null, null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  ];

  const zoomed = (least, most, since, until) => (least == null || least === most ? [since / 1000, until / 1000] : [least, most]);

  // A share hardly moves near 1 and must not look like a cliff: at least a twentieth of the scale is shown.
  const framed = (least, most) => {
    if (least == null || most == null) return [0, 1];
    const room = Math.max((most - least) * 0.15, 0.025);
    return [Math.max(0, least - room), Math.min(1.01, most + room)];
  };

  const drawMarks = (drawn, marks) => {
    const { ctx } = drawn;
    const { left, top, width, height } = drawn.bbox;
    const scale = window.devicePixelRatio || 1;
    let free = left;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("--quiet");
    ctx.lineWidth = scale;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.setLineDash([2 * scale, 3 * scale]);
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    for (const mark of marks) {
      const x = Math.round(drawn.valToPos(Date.parse(mark.at) / 1000, "x", true));
      if (x < left || x > left + width) continue;
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
      const text = mark.index_version.slice(0, 18);
      const length = ctx.measureText(text).width;
      const start = Math.min(x + 4 * scale, left + width - length);
      if (start < free) continue; // no room: the line alone
      ctx.fillText(text, start, top + height - 6 * scale);
      free = start + length + 8 * scale;
    }
    ctx.restore();
  };

  const fill = (measures, found) => {
    const rows = new Map();
    found.forEach(({ points }, place) => {
      for (const point of points) {
        if (!rows.has(point.at)) rows.set(point.at, []);
        rows.get(point.at)[place] = point.mean;
      }
    });
    const cell = (tag, text, attributes = {}) => Object.assign(document.createElement(tag), { textContent: text, ...attributes });
    const head = document.createElement("tr");
    head.append(cell("th", "Time", { scope: "col" }), ...measures.map((name) => cell("th", name.replaceAll("_", " "), { scope: "col", className: "number" })));
    table.tHead.replaceChildren(head);
    const newest = [...rows].sort(([a], [b]) => (a < b ? 1 : -1)).slice(0, TABLE_POINTS);
    table.tBodies[0].replaceChildren(
      ...newest.map(([at, values]) => {
        const row = document.createElement("tr");
        row.append(cell("td", stamp.format(new Date(at))), ...measures.map((_, place) => cell("td", score(values[place]), { className: "number" })));
        return row;
      }),
    );
  };

  // The choice stands in the address, so that it can be sent to somebody.
  const remember = (chosen) => {
    const address = new URL(location.href);
    for (const name of ["measure", "range"]) {
      const initial = name === "range" ? "24h" : "";
      if (chosen.get(name) === initial) address.searchParams.delete(name);
      else address.searchParams.set(name, chosen.get(name));
    }
    if (address.href !== location.href) history.replaceState(null, "", address);
  };
  const recall = () => {
    const wanted = new URL(location.href).searchParams;
    const range = [...controls.elements.range].find(({ value }) => value === wanted.get("range"));
    if (range) range.checked = true;
    if ([...controls.elements.measure.options].some(({ value }) => value === wanted.get("measure"))) {
      controls.elements.measure.value = wanted.get("measure");
    }
  };

  controls.addEventListener("change", load);
  controls.addEventListener("submit", (event) => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown && draw());
  new ResizeObserver(() => plot?.setSize({ width: host.clientWidth, height: HEIGHT })).observe(host);
  recall();
  load();
})();
