// Draws the evidence of harm of a check's detector over time, on a scale of powers of ten, against the line it alarms at.
"use strict";

(() => {
  const host = document.getElementById("evidence");
  if (!host || !window.uPlot) return;
  const { plots } = window;
  const note = document.getElementById("evidence-note");
  const HEIGHT = 170;
  const LEAST = 0.01; // all below is drawn alike: so little is no evidence
  let plot = null;
  let shown = null;
  let wish = 0;

  const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const big = (value) => {
    const power = Math.round(Math.log10(value));
    return power > 5 ? `10${[...String(power)].map((digit) => RAISED[digit]).join("")}` : value.toLocaleString("en");
  };
  // A line for every so many powers of ten, about six in all.
  const powers = (least, most) => {
    const [first, last] = [least, most].map((value) => Math.round(Math.log10(value)));
    const step = Math.max(1, Math.ceil((last - first) / 6 / 2) * 2);
    return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, place) => 10 ** (first + place * step));
  };
  const written = (value) => (value == null ? "–" : value >= 1e6 ? value.toExponential(1) : value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(2));

  const load = async ({ since, until }) => {
    const mine = ++wish;
    try {
      const period = { from: since.toISOString(), to: until.toISOString(), points: "300" };
      const found = await plots.ask(`${plots.root}/v1/checks/${encodeURIComponent(host.dataset.check)}/evidence-series`, period);
      if (mine !== wish) return;
      shown = { ...found, from: plots.seconds(found.from), to: plots.seconds(found.to) };
      draw();
    } catch (error) {
      if (mine === wish) note.textContent = `The evidence could not be drawn: ${error.message}`;
    }
  };

  const draw = () => {
    const { points, threshold } = shown;
    const data = [points.map(({ at }) => plots.seconds(at)), points.map(({ evidence }) => (evidence == null ? null : Math.max(evidence, LEAST)))];
    const most = Math.max(threshold * 10, ...data[1].filter((value) => value != null));
    const ink = plots.ink("--first");
    plot?.destroy();
    host.replaceChildren();
    const tip = plots.tip(host);
    plot = new uPlot(
      {
        width: host.clientWidth,
        height: HEIGHT,
        padding: [10, 14, 0, 0],
        series: [{}, { label: "evidence", stroke: ink, width: 2, paths: plots.steps, spanGaps: false, points: { show: points.length <= 60, size: 4, fill: ink, filter: (drawn, row, all) => (all ? null : plots.lonely(drawn, row)) } }],
        scales: {
          x: { range: () => [shown.from, shown.to] },
          y: { distr: 3, range: () => [LEAST, 10 ** Math.ceil(Math.log10(most))] },
        },
        axes: [plots.timeAxis(), { ...plots.axis(), size: 60, splits: (_, __, least, most) => powers(least, most), filter: (_, splits) => splits, values: (_, splits) => splits.map(big) }],
        hooks: {
          drawAxes: [drawLine],
          setCursor: [(drawn) => {
            const one = points[drawn.cursor.idx];
            if (!one || drawn.cursor.left < 0) tip.hide();
            else tip.show(described(one), drawn.cursor.left + drawn.bbox.left / (window.devicePixelRatio || 1), host.clientWidth);
          }],
        },
        legend: { show: false },
        cursor: { drag: { x: false, y: false } },
      },
      data,
      host,
    );
    plot.over.addEventListener("click", () => {
      const one = points[plot.cursor.idx];
      if (one) location.assign(`${plots.root}/runs/${encodeURIComponent(one.run)}`);
    });
    const learned = points.filter(({ evidence }) => evidence != null);
    const over = learned.filter((one) => one.evidence >= threshold).length;
    const top = learned.reduce((best, one) => (best && best.evidence >= one.evidence ? best : one), null);
    note.textContent = !points.length
      ? "No run in this period."
      : !top
        ? "The detector is still learning, so there is no evidence yet."
        : `Greatest evidence ${written(top.evidence)}, after run ${top.run}; ${over ? `${over} of ${learned.length} points are over the line` : "never over the line"}.`;
    host.setAttribute("aria-label", `Chart of the evidence of harm. ${note.textContent}`);
  };

  const described = ({ at, run, runs, evidence, lost, worse, open }) => [
    { text: plots.timeText(plots.seconds(at)), strong: true },
    { text: evidence == null ? "learning" : `evidence ${written(evidence)}${open ? ", an alarm stands" : ""}` },
    { text: `${lost} lost, ${worse} worse` },
    { text: runs > 1 ? `run ${run}, the worst of ${runs} runs` : `run ${run}` },
  ];

  const drawLine = (drawn) => plots.drawing(drawn, (ctx, { left, top, width, height }, scale) => {
    const { points, threshold } = shown;
    ctx.fillStyle = plots.ink("--critical-soft");
    points.forEach(({ at, open }, place) => {
      if (!open) return;
      const begin = drawn.valToPos(plots.seconds(at), "x", true);
      const next = points[place + 1];
      const end = next ? drawn.valToPos(plots.seconds(next.at), "x", true) : Math.min(begin + 8 * scale, left + width);
      ctx.fillRect(begin, top, Math.max(end - begin, scale), height);
    });
    const y = Math.round(drawn.valToPos(threshold, "y", true));
    ctx.strokeStyle = ctx.fillStyle = plots.ink("--critical");
    ctx.setLineDash([6 * scale, 4 * scale]);
    ctx.beginPath();
    ctx.moveTo(left, y);
    ctx.lineTo(left + width, y);
    ctx.stroke();
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.fillText(`alarm from ${threshold.toLocaleString("en")}`, left + 5 * scale, y - 5 * scale);
  });

  document.addEventListener("coalmine:period", ({ detail }) => load(detail));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown && draw());
  let width = host.clientWidth;
  new ResizeObserver(() => {
    if (host.clientWidth === width || !shown) return;
    width = host.clientWidth;
    draw();
  }).observe(host);
})();
