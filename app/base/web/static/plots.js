// What the charts of a check share: inks, axes of time, gaps, and the box that says what is under the pointer.
"use strict";

window.plots = (() => {
  const root = document.documentElement.dataset.path; // of the service within its host; "" = it is the host's
  const FONT = "12px system-ui, sans-serif";
  const stamp = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
  const short = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const score = (value) => (value == null ? "–" : value.toFixed(3));
  const seconds = (moment) => Date.parse(moment) / 1000;
  const timeText = (at) => stamp.format(at * 1000);

  const ask = async (address, parameters) => {
    const response = await fetch(`${address}?${new URLSearchParams(parameters)}`, { headers: { accept: "application/json" } });
    const body = await response.json();
    if (!response.ok) throw new Error((body.errors || []).map((one) => one.message).join("; ") || body.detail || `HTTP ${response.status}`);
    return body;
  };

  const make = (tag, text = "", attributes = {}) => Object.assign(document.createElement(tag), { textContent: text, ...attributes });

  // Hours and minutes as Europe and machines write them, and the date where the day changes.
  const CLOCK = [
    [86_400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  ];
  const axis = () => ({
    stroke: ink("--quiet"),
    font: FONT,
    grid: { stroke: ink("--line"), width: 1 },
    ticks: { stroke: ink("--line"), width: 1 },
  });
  // As far apart as the longest label is wide, so that none runs into the next.
  const timeAxis = () => ({ ...axis(), values: CLOCK, space: 84 });

  // A run holds until the next one: a slope between a healthy and a broken one would show what never was.
  const steps = window.uPlot?.paths.stepped({ align: 1 });

  // A point without a neighbour to draw a line to would not be seen.
  const lonely = (plot, place) => {
    const values = plot.data[place];
    const known = (from, step) => {
      for (let at = from + step; at >= 0 && at < values.length; at += step) {
        if (values[at] !== undefined) return values[at] !== null;
      }
      return false;
    };
    const found = [];
    values.forEach((value, at) => {
      if (value != null && !known(at, -1) && !known(at, 1)) found.push(at);
    });
    return found.length ? found : null;
  };

  // Draws on the canvas in its own pixels, which are smaller than those of the page.
  const drawing = (plot, draw) => {
    const { ctx } = plot;
    const scale = window.devicePixelRatio || 1;
    ctx.save();
    ctx.lineWidth = scale;
    draw(ctx, plot.bbox, scale);
    ctx.restore();
  };

  // Writes words on a ground of their own, so that they are read over lines.
  const lettered = (ctx, text, x, y) => {
    ctx.save();
    ctx.setLineDash([]);
    ctx.lineJoin = "round";
    ctx.lineWidth = 4 * (window.devicePixelRatio || 1);
    ctx.strokeStyle = ink("--surface");
    ctx.strokeText(text, x, y);
    ctx.restore();
    ctx.fillText(text, x, y);
  };

  // The box beside the pointer; the text of it is also for who hears it.
  const tip = (host) => {
    const box = make("div", "", { className: "plot-tip", hidden: true });
    host.append(box);
    return {
      hide: () => { box.hidden = true; },
      show: (lines, left, width) => {
        box.replaceChildren(...lines.map(({ text, swatch, strong }) => {
          const line = make(strong ? "strong" : "div", text);
          if (swatch) {
            const mark = make("span", "", { className: "swatch" });
            mark.style.background = swatch;
            line.prepend(mark);
          }
          return line;
        }));
        box.hidden = false;
        box.style.left = `${left > width / 2 ? Math.max(0, left - box.offsetWidth - 14) : left + 14}px`;
      },
    };
  };

  // A line of what a run measured; points where there are few, or none beside them.
  const curve = (label, stroke, few, size = 4) => ({
    label,
    stroke,
    width: 2,
    paths: steps,
    spanGaps: false,
    points: { show: few, size, fill: stroke, filter: (drawn, row, all) => (all ? null : lonely(drawn, row)) },
  });

  // Call back when the colours change, or the width of a chart.
  const whenItLooksOtherwise = (host, again) => {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    let width = host.clientWidth;
    new ResizeObserver(() => {
      if (host.clientWidth === width) return;
      width = host.clientWidth;
      again();
    }).observe(host);
  };

  // A smaller chart of a check, over the period that its main chart shows: asked for and drawn when that changes.
  // `path`: of its series; `show` returns `{data, told, ...options}` of what was found, `described` and `runOf` tell of
  // a point, `isOpen` whether it can be seen.
  const follow = (host, note, { path, what, name, show, described, runOf, isOpen = () => true }) => {
    let plot = null;
    let shown = null;
    let period = null;
    let wish = 0;
    const draw = () => {
      const { data, told, scales, hooks, ...options } = show(shown);
      plot?.destroy();
      host.replaceChildren();
      const box = tip(host);
      const setCursor = (drawn) => {
        const one = shown.points[drawn.cursor.idx];
        if (!one || drawn.cursor.left < 0) box.hide();
        else box.show(described(one), drawn.cursor.left + drawn.bbox.left / (window.devicePixelRatio || 1), host.clientWidth);
      };
      plot = new uPlot(
        {
          width: host.clientWidth,
          padding: [10, 14, 0, 0],
          scales: { x: { range: () => [shown.from, shown.to] }, ...scales },
          hooks: { ...hooks, setCursor: [setCursor] },
          cursor: { drag: { x: false, y: false } },
          ...options,
        },
        data,
        host,
      );
      plot.over.addEventListener("click", () => {
        const one = shown.points[plot.cursor.idx];
        if (one) location.assign(`${root}/runs/${encodeURIComponent(runOf(one))}`);
      });
      note.textContent = told;
      host.setAttribute("aria-label", `Chart of the ${name}. ${told}`);
    };
    const load = async () => {
      if (!period || !isOpen()) return;
      const mine = ++wish;
      try {
        const wanted = { from: period.since.toISOString(), to: period.until.toISOString(), points: "300" };
        const found = await ask(`${root}/v1/checks/${encodeURIComponent(host.dataset.check)}/${path}`, wanted);
        if (mine !== wish) return;
        shown = { ...found, from: seconds(found.from), to: seconds(found.to) };
        draw();
      } catch (error) {
        if (mine === wish) note.textContent = `The ${what} could not be drawn: ${error.message}`;
      }
    };
    document.addEventListener("coalmine:period", ({ detail }) => {
      period = detail;
      load();
    });
    whenItLooksOtherwise(host, () => shown && draw());
    return load;
  };

  return { FONT, ask, axis, curve, drawing, follow, ink, lettered, make, root, score, seconds, short, steps, timeAxis, timeText, tip, whenItLooksOtherwise };
})();
