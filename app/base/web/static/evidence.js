// Draws the evidence of harm of a check's detector over time, on a scale of powers of ten, against the line it alarms at.
"use strict";

(() => {
  const host = document.getElementById("evidence");
  if (!host || !window.uPlot) return;
  const { plots } = window;
  const note = document.getElementById("evidence-note");
  const LEAST = 0.01; // all below is drawn alike: so little is no evidence

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

  const show = ({ points, threshold }) => {
    const data = [points.map(({ at }) => plots.seconds(at)), points.map(({ evidence }) => (evidence == null ? null : Math.max(evidence, LEAST)))];
    const most = Math.max(threshold * 10, ...data[1].filter((value) => value != null));
    const learned = points.filter(({ evidence }) => evidence != null);
    const over = learned.filter((one) => one.evidence >= threshold).length;
    const top = learned.reduce((best, one) => (best && best.evidence >= one.evidence ? best : one), null);
    return {
      data,
      height: 170,
      series: [{}, plots.curve("evidence", plots.ink("--first"), points.length <= 60)],
      scales: { y: { distr: 3, range: () => [LEAST, 10 ** Math.ceil(Math.log10(most))] } },
      axes: [plots.timeAxis(), { ...plots.axis(), size: 60, splits: (_, __, least, most) => powers(least, most), filter: (_, splits) => splits, values: (_, splits) => splits.map(big) }],
      hooks: { drawAxes: [(drawn) => drawLine(drawn, points, threshold)] },
      legend: { show: false },
      told: !points.length
        ? "No run in this period."
        : !top
          ? "The detector is still learning, so there is no evidence yet."
          : `Greatest evidence ${written(top.evidence)}, after run ${top.run}; ${over ? `${over} of ${learned.length} points are over the line` : "never over the line"}.`,
    };
  };

  const described = ({ at, run, runs, evidence, lost, worse, open }) => [
    { text: plots.timeText(plots.seconds(at)), strong: true },
    { text: evidence == null ? "learning" : `evidence ${written(evidence)}${open ? ", an alarm stands" : ""}` },
    { text: `${lost} lost, ${worse} worse` },
    { text: runs > 1 ? `run ${run}, the worst of ${runs} runs` : `run ${run}` },
  ];

  const drawLine = (drawn, points, threshold) => plots.drawing(drawn, (ctx, { left, top, width, height }, scale) => {
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
    plots.lettered(ctx, `alarm from ${threshold.toLocaleString("en")}`, left + 5 * scale, y - 5 * scale);
  });

  plots.follow(host, note, { path: "evidence-series", what: "evidence", name: "evidence of harm", show, described, runOf: (one) => one.run });
})();
