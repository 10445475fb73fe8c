// Draws what stands behind and above the lines of a chart: gaps, what is usual, index versions, alerts, bounds of rules.
"use strict";

window.plots.around = (() => {
  const { plots } = window;
  const LANE = 15;
  const LANES = 3;
  const BAR = 8;

  // Puts the names of lines that lie close to each other side by side: gives how far right each begins.
  const apart = (labels, high) => labels.reduce((placed, { y, width }) => {
    const near = placed.filter((one) => Math.abs(one.y - y) < high);
    return [...placed, { y, width, x: Math.max(0, ...near.map((one) => one.x + one.width + high / 2)) }];
  }, []).map(({ x }) => x);

  const drawGround = (drawn, lines) => plots.drawing(drawn, (ctx, { left, top, width, height }, scale) => {
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.fillStyle = plots.ink("--neutral-soft");
    for (const { from, to } of lines[0].gaps) {
      const [begin, end] = [from, to].map((at) => drawn.valToPos(plots.seconds(at), "x", true));
      ctx.fillRect(begin, top, end - begin, height);
    }
    for (const { usual, ink } of lines.length <= 2 ? lines : []) {
      if (!usual) continue;
      const [high, low] = [usual.high, usual.low].map((value) => drawn.valToPos(value, "y", true));
      ctx.fillStyle = `${plots.ink(ink)}26`;
      ctx.fillRect(left, Math.min(high, low - 4 * scale), width, Math.max(low - high, 4 * scale));
    }
  });

  // Drawn last, so that no line goes through the words.
  const drawBounds = (drawn, lines) => plots.drawing(drawn, (ctx, { left, width }, scale) => {
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    const bounds = lines.flatMap((one) => one.lines).map((line) => {
      const y = Math.round(drawn.valToPos(line.value, "y", true));
      return { line, y, under: line.bad === "below" ? y + 13 * scale : y - 5 * scale, width: ctx.measureText(line.severity).width };
    });
    const begins = apart(bounds.map(({ under, width: long }) => ({ y: under, width: long })), 12 * scale);
    for (const [place, { line, y, under }] of bounds.entries()) {
      ctx.strokeStyle = ctx.fillStyle = plots.ink(`--${line.severity}`);
      ctx.setLineDash([6 * scale, 4 * scale]);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.textAlign = "left";
      ctx.textBaseline = "alphabetic";
      plots.lettered(ctx, line.severity, left + 5 * scale + begins[place], under);
    }
  });

  // Labels of index versions stand above each other where they would overlap, the newest first; what finds no room
  // keeps its line, and the list below names it.
  const lanes = (marks, since, until, width) => {
    const ctx = document.createElement("canvas").getContext("2d");
    ctx.font = "11px system-ui, sans-serif";
    const free = Array(LANES).fill(width);
    const placed = [...marks].reverse().map((mark) => {
      const x = ((plots.seconds(mark.at) - since) / (until - since)) * width;
      const text = mark.index_version.length > 18 ? `${mark.index_version.slice(0, 17)}…` : mark.index_version;
      const length = ctx.measureText(text).width;
      const begin = Math.max(0, Math.min(x + 3, width - length));
      const lane = x < 0 || x > width ? -1 : free.findIndex((limit) => begin + length <= limit);
      if (lane >= 0) free[lane] = Math.min(begin, x) - 8;
      return { ...mark, text, begin, lane };
    });
    return { placed, depth: Math.max(0, ...placed.map(({ lane }) => lane + 1)) };
  };

  const alertLanes = (alerts) => {
    const ends = [];
    const placed = alerts.map((alert) => {
      const begin = plots.seconds(alert.opened_at);
      const free = ends.findIndex((end) => end < begin);
      const lane = free >= 0 ? free : Math.min(ends.length, LANES - 1);
      ends[lane] = Math.max(ends[lane] || 0, alert.resolved_at ? plots.seconds(alert.resolved_at) : Infinity);
      return { ...alert, lane };
    });
    return { placed, depth: ends.length };
  };

  const drawMarks = (drawn, marks, bars, edits) => plots.drawing(drawn, (ctx, { left, top, width, height }, scale) => {
    const across = (at) => Math.round(drawn.valToPos(plots.seconds(at), "x", true));
    const above = top - (bars.depth * BAR + 4) * scale;
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    ctx.strokeStyle = ctx.fillStyle = plots.ink("--quiet");
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.setLineDash([2 * scale, 3 * scale]);
    for (const { at, text, begin, lane } of marks.placed) {
      const x = across(at);
      if (x < left || x > left + width) continue;
      ctx.beginPath();
      ctx.moveTo(x, lane < 0 ? top - 4 * scale : above - lane * LANE * scale);
      ctx.lineTo(x, top + height);
      ctx.stroke();
      if (lane >= 0) plots.lettered(ctx, text, left + begin * scale, above - (lane * LANE + 3) * scale);
    }
    ctx.setLineDash([]);
    for (const edit of edits.map(across).filter((x) => x >= left && x <= left + width)) {
      ctx.beginPath();
      ctx.moveTo(edit - 4 * scale, top + height);
      ctx.lineTo(edit, top + height - 8 * scale);
      ctx.lineTo(edit + 4 * scale, top + height);
      ctx.fill();
    }
    for (const { severity, opened_at, resolved_at, lane } of bars.placed) {
      const [begin, end] = [Math.max(left, across(opened_at)), resolved_at ? Math.min(left + width, across(resolved_at)) : left + width];
      const y = top - (lane * BAR + 7) * scale;
      ctx.strokeStyle = ctx.fillStyle = plots.ink(`--${severity}`);
      ctx.setLineDash([]);
      if (severity === "critical") ctx.fillRect(begin, y, Math.max(end - begin, 2 * scale), 5 * scale);
      else ctx.strokeRect(begin, y, Math.max(end - begin, 2 * scale), 5 * scale);
      ctx.globalAlpha = 0.55;
      for (const [at, dash] of [[opened_at, []], [resolved_at, [4 * scale, 4 * scale]]]) {
        if (!at || across(at) < left || across(at) > left + width) continue;
        ctx.setLineDash(dash);
        ctx.beginPath();
        ctx.moveTo(across(at), y);
        ctx.lineTo(across(at), top + height);
        ctx.stroke();
      }
      ctx.globalAlpha = 1;
    }
  });

  // How much room the labels and bars take above the plot.
  const room = (marks, bars) => 10 + marks.depth * LANE + bars.depth * BAR;

  return { alertLanes, apart, drawBounds, drawGround, drawMarks, lanes, room };
})();
