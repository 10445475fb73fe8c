// Draws the median, the 95th percentile and the maximum of a check's latency over the period of its chart, once it is opened.
"use strict";

(() => {
  const host = document.getElementById("latencies");
  if (!host || !window.uPlot) return;
  const { plots } = window;
  const note = document.getElementById("latencies-note");
  const fold = host.closest("details");
  const HEIGHT = 200;
  const LINES = [["p50", "median", "--first", undefined], ["p95", "p95", "--second", [7, 4]], ["max", "slowest", "--quiet", [2, 3]]];
  let plot = null;
  let shown = null;
  let period = null;
  let wish = 0;

  const took = (value) => (value == null ? "–" : value < 1 ? `${Math.round(value * 1_000)} ms` : `${value.toFixed(2)} s`);

  const load = async () => {
    if (!fold.open || !period) return;
    const mine = ++wish;
    try {
      const wanted = { from: period.since.toISOString(), to: period.until.toISOString(), points: "300" };
      const found = await plots.ask(`${plots.root}/v1/checks/${encodeURIComponent(host.dataset.check)}/latency-series`, wanted);
      if (mine !== wish) return;
      shown = { ...found, from: plots.seconds(found.from), to: plots.seconds(found.to) };
      draw();
    } catch (error) {
      if (mine === wish) note.textContent = `The latency could not be drawn: ${error.message}`;
    }
  };

  const draw = () => {
    const { points, lines } = shown;
    const data = [points.map(({ at }) => plots.seconds(at)), ...LINES.map(([name]) => points.map((one) => one[name]))];
    const most = Math.max(...data.slice(1).flat(), ...lines.map(({ value }) => value), 0.001);
    plot?.destroy();
    host.replaceChildren();
    const tip = plots.tip(host);
    plot = new uPlot(
      {
        width: host.clientWidth,
        height: HEIGHT,
        padding: [10, 14, 0, 0],
        series: [{}, ...LINES.map(([, label, ink, dash]) => ({ label, stroke: plots.ink(ink), width: 2, dash, paths: plots.steps, spanGaps: false, points: { show: points.length <= 60, size: 4, fill: plots.ink(ink), filter: (drawn, row, all) => (all ? null : plots.lonely(drawn, row)) } }))],
        scales: { x: { range: () => [shown.from, shown.to] }, y: { range: () => [0, most * 1.1] } },
        axes: [plots.timeAxis(), { ...plots.axis(), size: 64, values: (_, splits) => splits.map(took) }],
        hooks: {
          drawAxes: [drawBounds],
          setCursor: [(drawn) => {
            const one = points[drawn.cursor.idx];
            if (!one || drawn.cursor.left < 0) tip.hide();
            else tip.show(described(one), drawn.cursor.left + drawn.bbox.left / (window.devicePixelRatio || 1), host.clientWidth);
          }],
        },
        legend: { live: false },
        cursor: { drag: { x: false, y: false } },
      },
      data,
      host,
    );
    plot.over.addEventListener("click", () => {
      const one = points[plot.cursor.idx];
      if (one) location.assign(`${plots.root}/runs/${encodeURIComponent(one.last_run)}`);
    });
    const known = points.filter(({ p95 }) => p95 != null);
    const slowest = known.reduce((worst, one) => (worst && worst.p95 >= one.p95 ? worst : one), null);
    note.textContent = !slowest ? "No latency was measured in this period." : `Slowest p95 ${took(slowest.p95)}, at run ${slowest.last_run}; newest ${took(known.at(-1).p95)}.${lines.length ? ` Dashed across: bounds of rules.` : ""}`;
    host.setAttribute("aria-label", `Chart of the latency over time. ${note.textContent}`);
  };

  const described = (one) => [
    { text: plots.timeText(plots.seconds(one.at)), strong: true },
    ...LINES.map(([name, label, ink]) => ({ text: `${label} ${took(one[name])}`, swatch: plots.ink(ink) })),
    { text: one.runs > 1 ? `runs ${one.first_run} to ${one.last_run}` : `run ${one.first_run}` },
  ];

  const drawBounds = (drawn) => plots.drawing(drawn, (ctx, { left, width }, scale) => {
    ctx.setLineDash([6 * scale, 4 * scale]);
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    for (const { severity, percentile, value } of shown.lines) {
      const y = Math.round(drawn.valToPos(value, "y", true));
      ctx.strokeStyle = ctx.fillStyle = plots.ink(`--${severity}`);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.fillText(`${severity}, ${percentile}`, left + 5 * scale, y - 5 * scale);
    }
  });

  document.addEventListener("coalmine:period", ({ detail }) => {
    period = detail;
    load();
  });
  fold.addEventListener("toggle", load);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown && draw());
  let width = host.clientWidth;
  new ResizeObserver(() => {
    if (host.clientWidth === width || !shown) return;
    width = host.clientWidth;
    draw();
  }).observe(host);
})();
