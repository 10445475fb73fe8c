// Draws measures of a check over time from /v1/checks/{slug}/series, with a table that says the same. The choice stands
// in the address: measure, also, category, range, and from and to of a period of one's own.
"use strict";

(() => {
  const host = document.getElementById("chart");
  const controls = document.getElementById("chart-controls");
  if (!host || !controls || !window.uPlot) return;
  const { plots } = window;
  const { around, words } = plots;
  const [note, key, point, table, reset, scale] = ["note", "key", "point", "table", "reset", "scale"].map((name) => document.getElementById(`chart-${name}`));
  const own = document.getElementById("chart-own");
  const check = host.dataset.check;
  const HEIGHT = 300;
  const MOST_LINES = 6;
  const INKS = ["--first", "--second", "--third", "--fourth", "--fifth", "--sixth"];
  const DASHES = [undefined, [7, 4], [2, 3], [10, 3, 2, 3], [4, 4], [12, 4]]; // distinct without colour
  let plot = null;
  let shown = null;
  let wish = 0;
  let before = null; // the range to go back to

  const { spoken, known, pointAt } = words;
  const chosen = () => {
    const data = new FormData(controls);
    const first = data.get("measure");
    const category = data.get("category") || "";
    const measures = first ? [first, ...data.getAll("also").filter((one) => one !== first)] : ["health_score", "coverage"];
    if (category === "*") {
      const measure = first || "coverage";
      return categories(measure).slice(0, MOST_LINES).map((one) => ({ measure, category: one, label: spoken(one) }));
    }
    return measures.slice(0, MOST_LINES).map((measure) => ({ measure, category, label: spoken(measure) }));
  };
  const kept = (category) => controls.elements.category.querySelector(`option[value="${CSS.escape(category)}"]`).dataset.measures.split(" ");
  const categories = (measure) =>
    [...controls.elements.category.options].map(({ value }) => value).filter((one) => one && one !== "*" && kept(one).includes(measure));

  const period = () => {
    const range = controls.querySelector('input[name="range"]:checked');
    if (range.value !== "own") {
      const until = new Date();
      return { since: new Date(until - Number(range.dataset.seconds) * 1000), until };
    }
    const [since, until] = ["from", "to"].map((name) => new Date(own.elements[name].value));
    return Number.isNaN(+since) || Number.isNaN(+until) || since >= until ? null : { since, until };
  };

  const load = async () => {
    const times = period();
    own.hidden = controls.elements.range.value !== "own";
    reset.hidden = !before;
    if (!times) {
      note.textContent = "Give a beginning and an end after it.";
      return;
    }
    const lines = chosen();
    const mine = ++wish;
    remember(times);
    note.textContent = "Loading…";
    try {
      const found = await Promise.all(lines.map((line) => series(line, times)));
      if (mine !== wish) return; // somebody chose again in the meantime
      // Of the categories those are left out that have no such measure, as negative canaries have no coverage.
      const all = lines.map((line, place) => ({ ...line, ...found[place], label: line.label }));
      const some = lines.length > 1 && lines[0].category ? all.filter(({ points }) => points.length) : all;
      const drawn = (some.length ? some : all.slice(0, 1)).map((line, place) => ({ ...line, ink: INKS[place], dash: DASHES[place] }));
      shown = { ...times, lines: drawn };
      draw();
      words.fill(shown, table);
      document.dispatchEvent(new CustomEvent("coalmine:period", { detail: { since: new Date(start(shown)), until: times.until } }));
    } catch (error) {
      if (mine === wish) note.textContent = `The chart could not be drawn: ${error.message}`;
    }
  };

  const series = ({ measure, category }, { since, until }) => {
    const wanted = { measure, from: since.toISOString(), to: until.toISOString(), points: "300" };
    if (category) wanted.category = category;
    if (host.dataset.version) wanted.measures_version = host.dataset.version;
    return plots.ask(`${plots.root}/v1/checks/${encodeURIComponent(check)}/series`, wanted);
  };

  // --- the picture ---

  const draw = () => {
    const { lines, until } = shown;
    const since = start(shown);
    scale.hidden = !lines.some(({ measure }) => measure.startsWith("ERR@"));
    const single = lines.length === 1;
    const spread = single && lines[0].points.some(({ runs, corrected }) => runs > 1 || corrected);
    const data = uPlot.join(lines.map((line) => columns(line, spread)));
    const few = lines.every(({ points }) => points.length <= 60);
    const curves = lines.map(({ label, ink, dash }, place) => ({ ...plots.curve(label, plots.ink(ink), few, 5), dash, place }));
    const edge = { stroke: "transparent", paths: plots.steps, points: { show: false }, class: "edge" };
    const marks = around.lanes(lines[0].marks, since / 1000, until / 1000, host.clientWidth - 52 - 14);
    const bars = around.alertLanes(lines[0].alerts);
    plot?.destroy();
    host.replaceChildren();
    const tip = plots.tip(host);
    plot = new uPlot(
      {
        width: host.clientWidth,
        height: HEIGHT,
        padding: [around.room(marks, bars), 14, 0, 0],
        series: [{}, ...curves, ...(spread ? [{ ...edge, label: "lowest" }, { ...edge, label: "highest" }] : [])],
        bands: spread ? [{ series: [3, 2], fill: `${plots.ink(INKS[0])}30` }] : [],
        scales: {
          x: { min: since / 1000, max: until / 1000, range: () => [since / 1000, until / 1000] },
          y: { range: (_, least, most) => framed(least, most, lines) },
        },
        axes: [plots.timeAxis(), { ...plots.axis(), size: 52, values: (_, splits) => splits.map((value) => Number(value.toFixed(3))) }],
        hooks: {
          drawAxes: [(drawn) => around.drawGround(drawn, lines)],
          draw: [(drawn) => around.drawMarks(drawn, marks, bars, lines[0].edits), (drawn) => around.drawBounds(drawn, lines)],
          setCursor: [(drawn) => tell(drawn, tip)],
          setSelect: [(drawn) => drawn.select.width > 0 && zoom(drawn.posToVal(drawn.select.left, "x"), drawn.posToVal(drawn.select.left + drawn.select.width, "x"))],
        },
        legend: { live: false }, // values at the pointer stand beside it
        cursor: { focus: { prox: 30 }, drag: { x: true, y: false, setScale: false, dist: 8 }, bind: { dblclick: () => () => back() } },
      },
      data,
      host,
    );
    let pressed = null;
    plot.over.addEventListener("mousedown", ({ clientX }) => { pressed = clientX; });
    plot.over.addEventListener("click", ({ clientX }) => Math.abs(clientX - pressed) < 8 && plot.cursor.idx != null && look(plot.cursor.idx));
    host.tabIndex = 0;
    const summary = words.say(shown, key, document.getElementById("chart-happened"), spread, marks);
    note.textContent = summary.note;
    host.setAttribute("aria-label", summary.name);
  };

  // Where nothing ran in the first half of a period of no one's choosing, the chart begins with the first run.
  const start = ({ lines, since, until }) => {
    const first = Math.min(...lines.filter(({ points }) => points.length).map(({ points }) => Date.parse(points[0].at)));
    const fixed = controls.elements.range.value === "own";
    if (fixed || !Number.isFinite(first) || first - since < (until - since) / 2) return +since;
    return Math.min(first - (until - first) * 0.03, until - 120_000);
  };

  // Nulls stand in the middle of gaps, so that no line is drawn through what nobody measured.
  const columns = (line, spread) => {
    const rows = known(line).map((one) => [plots.seconds(one.at), one.mean, ...words.ends(one)]);
    for (const { from, to } of line.gaps) rows.push([(plots.seconds(from) + plots.seconds(to)) / 2, null, null, null]);
    rows.sort(([a], [b]) => a - b);
    const distinct = rows.filter(([at], place) => !place || at > rows[place - 1][0]);
    return (spread ? [0, 1, 2, 3] : [0, 1]).map((place) => distinct.map((row) => row[place]));
  };

  // A share hardly moves near 1 and must not look like a cliff: at least a twentieth of the scale is shown, and a
  // bound of a rule that is not far away.
  const framed = (least, most, lines) => {
    if (least == null || most == null) return [0, 1];
    const near = lines.flatMap((line) => line.lines.map(({ value }) => value)).filter((value) => value > least - 0.3 && value < most + 0.3);
    [least, most] = [Math.min(least, ...near), Math.max(most, ...near)];
    const room = Math.max((most - least) * 0.12, 0.025);
    return [Math.max(0, least - room), Math.min(1.01, most + room)];
  };

  // --- what is under the pointer, and where it leads ---

  const tell = (drawn, tip) => {
    const texts = words.described(drawn, shown);
    if (!texts || drawn.cursor.left < 0) tip.hide();
    else tip.show(texts, drawn.cursor.left + drawn.bbox.left / (window.devicePixelRatio || 1), host.clientWidth);
  };

  // A point of one run leads to it; one of several is looked at closer.
  const look = (idx) => {
    const at = plot.data[0][idx];
    const line = shown.lines.find((one) => pointAt(one, at));
    if (!line) return;
    const one = pointAt(line, at);
    if (one.first_run && one.first_run === one.last_run) {
      const version = host.dataset.version ? `?measures_version=${encodeURIComponent(host.dataset.version)}` : "";
      location.assign(`${plots.root}/runs/${encodeURIComponent(one.first_run)}${version}`);
      return;
    }
    const next = known(line).find((other) => plots.seconds(other.at) > at);
    const end = line.seconds && one.runs > 1 ? Math.max(at + line.seconds, next ? plots.seconds(next.at) : 0) : next ? plots.seconds(next.at) : shown.until / 1000;
    zoom(at - 1, end);
  };

  const zoom = (from, to) => {
    const { seconds } = shown.lines[0];
    if (seconds && shown.until - shown.since <= 2_500 * seconds) {
      note.textContent = "Single runs of that time are no longer kept.";
      return;
    }
    if (to - from < 1) return;
    const checked = controls.elements.range.value;
    if (checked !== "own") before = checked;
    own.elements.from.value = local(from * 1000);
    own.elements.to.value = local(to * 1000);
    controls.elements.range.value = "own";
    load();
  };
  const back = () => {
    if (!before) return;
    controls.elements.range.value = before;
    before = null;
    load();
  };
  const local = (milliseconds) => {
    const moment = new Date(milliseconds);
    return new Date(moment - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  };

  // With the keyboard: arrows go from point to point, Enter follows one, Escape goes back to the whole range.
  host.addEventListener("keydown", (event) => {
    if (!plot || event.target !== host) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const last = plot.data[0].length - 1;
    if (event.key in steps && last >= 0) {
      const from = plot.cursor.idx ?? (steps[event.key] > 0 ? -1 : last + 1);
      const idx = Math.max(0, Math.min(last, steps[event.key] === -Infinity ? 0 : from + steps[event.key]));
      plot.setCursor({ left: plot.valToPos(plot.data[0][idx], "x"), top: plot.over.clientHeight / 2 });
      point.textContent = (words.described(plot, shown) || []).map(({ text }) => text).join(", ");
    } else if (event.key === "Enter" && plot.cursor.idx != null) look(plot.cursor.idx);
    else if (event.key === "Escape") back();
    else return;
    event.preventDefault();
  });

  // --- the choice ---

  // The choice stands in the address, so that it can be sent to somebody.
  const remember = ({ since, until }) => {
    const address = new URL(location.href);
    const data = new FormData(controls);
    for (const name of ["measure", "category", "range"]) {
      const value = data.get(name);
      if (!value || value === "own" || (name === "range" && value === "24h")) address.searchParams.delete(name);
      else address.searchParams.set(name, value);
    }
    address.searchParams.delete("also");
    if (data.get("measure")) data.getAll("also").forEach((one) => address.searchParams.append("also", one));
    for (const [name, moment] of [["from", since], ["to", until]]) {
      if (data.get("range") === "own") address.searchParams.set(name, moment.toISOString().replace(".000Z", "Z"));
      else address.searchParams.delete(name);
    }
    if (address.href !== location.href) history.replaceState(null, "", address);
  };
  const recall = () => {
    const wanted = new URL(location.href).searchParams;
    for (const name of ["measure", "category"]) {
      if ([...controls.elements[name].options].some(({ value }) => value === wanted.get(name))) controls.elements[name].value = wanted.get(name);
    }
    for (const tick of controls.querySelectorAll('input[name="also"]')) tick.checked = wanted.getAll("also").includes(tick.value);
    const [from, to] = ["from", "to"].map((name) => new Date(wanted.get(name) || NaN));
    if (!Number.isNaN(+from)) {
      own.elements.from.value = local(+from);
      own.elements.to.value = local(Number.isNaN(+to) ? Date.now() : +to);
      controls.elements.range.value = "own";
    } else if ([...controls.elements.range].some(({ value }) => value === wanted.get("range") && value !== "own")) {
      controls.elements.range.value = wanted.get("range");
    }
    offer();
  };

  // Of categories only some measures are kept over time: the others cannot be chosen.
  const offer = () => {
    const category = controls.elements.category.value;
    const there = category && category !== "*" ? kept(category) : null;
    for (const option of controls.elements.measure.options) {
      option.disabled = option.value !== "" && (there ? !there.includes(option.value) : category === "*" && !categories(option.value).length);
    }
    const { measure } = controls.elements;
    if (measure.selectedOptions[0].disabled) measure.value = "";
    document.getElementById("chart-also").hidden = !measure.value || category === "*";
    for (const tick of controls.querySelectorAll('input[name="also"]')) tick.disabled = tick.value === measure.value || (there !== null && !there.includes(tick.value));
  };

  controls.addEventListener("change", ({ target }) => {
    if (target.name === "range") {
      before = null;
      if (target.value === "own" && shown && !own.elements.from.value) {
        own.elements.from.value = local(+shown.since);
        own.elements.to.value = local(+shown.until);
      }
    }
    offer();
    load();
  });
  for (const form of [controls, own]) form.addEventListener("submit", (event) => {
    event.preventDefault();
    load();
  });
  reset.addEventListener("click", () => {
    back();
    host.focus();
  });
  plots.whenItLooksOtherwise(host, () => shown && draw());
  recall();
  load();
})();
