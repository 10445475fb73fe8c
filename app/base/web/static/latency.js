// Draws the median, the 95th percentile and the maximum of a check's latency over the period of its chart, once it is opened.
"use strict";

(() => {
  const host = document.getElementById("latencies");
  if (!host || !window.uPlot) return;
  const { plots } = window;
  const note = document.getElementById("latencies-note");
  const fold = host.closest("details");
  const LINES = [["p50", "median", "--first", undefined], ["p95", "p95", "--second", [7, 4]], ["max", "slowest", "--quiet", [2, 3]]];

  const took = (value) => (value == null ? "–" : value < 1 ? `${Math.round(value * 1_000)} ms` : `${value.toFixed(2)} s`);

  const show = ({ points, lines }) => {
    const data = [points.map(({ at }) => plots.seconds(at)), ...LINES.map(([name]) => points.map((one) => one[name]))];
    const most = Math.max(...data.slice(1).flat(), ...lines.map(({ value }) => value), 0.001);
    const known = points.filter(({ p95 }) => p95 != null);
    const slowest = known.reduce((worst, one) => (worst && worst.p95 >= one.p95 ? worst : one), null);
    const across = lines.length ? " Dashed across: bounds of rules." : "";
    return {
      data,
      height: 200,
      series: [{}, ...LINES.map(([, label, ink, dash]) => ({ ...plots.curve(label, plots.ink(ink), points.length <= 60), dash }))],
      scales: { y: { range: () => [0, most * 1.1] } },
      axes: [plots.timeAxis(), { ...plots.axis(), size: 64, values: (_, splits) => splits.map(took) }],
      hooks: { drawAxes: [(drawn) => drawBounds(drawn, lines)] },
      legend: { live: false },
      told: slowest
        ? `Slowest p95 ${took(slowest.p95)}, at run ${slowest.last_run}; newest ${took(known.at(-1).p95)}.${across}`
        : "No latency was measured in this period.",
    };
  };

  const described = (one) => [
    { text: plots.timeText(plots.seconds(one.at)), strong: true },
    ...LINES.map(([name, label, ink]) => ({ text: `${label} ${took(one[name])}`, swatch: plots.ink(ink) })),
    { text: one.runs > 1 ? `runs ${one.first_run} to ${one.last_run}` : `run ${one.first_run}` },
  ];

  const drawBounds = (drawn, lines) => plots.drawing(drawn, (ctx, { left, width }, scale) => {
    ctx.setLineDash([6 * scale, 4 * scale]);
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    for (const { severity, percentile, value } of lines) {
      const y = Math.round(drawn.valToPos(value, "y", true));
      ctx.strokeStyle = ctx.fillStyle = plots.ink(`--${severity}`);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      plots.lettered(ctx, `${severity}, ${percentile}`, left + 5 * scale, y - 5 * scale);
    }
  });

  const load = plots.follow(host, note, {
    path: "latency-series", what: "latency", name: "latency over time", show, described,
    runOf: (one) => one.last_run, isOpen: () => fold.open,
  });
  fold.addEventListener("toggle", load);
})();
