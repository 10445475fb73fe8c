// Says in words what a chart shows: the box at the pointer, the key, the list of events, and the table of all points.
"use strict";

window.plots.words = (() => {
  const { plots } = window;
  const spoken = (name) => (name === "health_score" ? "first-hit relevance" : name.replaceAll("_", " "));
  const EDITED = "suite edited: other questions or expected chunks from here on";
  const known = ({ points }) => points.filter(({ unknown }) => !unknown);
  const runsOf = ({ first_run: first, last_run: last, runs }) => {
    if (!first) return `${runs} ${runs === 1 ? "run" : "runs"}`;
    return first === last ? `run ${first}` : `${runs} runs, ${first} to ${last}`;
  };
  const pointAt = (line, at) => known(line).find((one) => plots.seconds(one.at) === at);
  // Of a rate corrected by labels its interval is drawn and told, of several runs of another measure the extremes.
  const ends = ({ corrected, min, max }) => (corrected ? [corrected.low, corrected.high] : [min, max]);
  const told = (one) => {
    if (!one.corrected && one.runs === 1) return plots.score(one.mean);
    const { judge_rate: rate, answers, unrated, edited_since: edited, labelled_of: of, labelled_before_edit_of: asked } = one.corrected || {};
    const rated = unrated ? `; ${answers} of ${answers + unrated} rated` : "";
    const before = edited ? "; labelled before the judge was edited" : "";
    const other = of ? `; labelled on answers of retriever ${of}` : asked ? `; labelled before retriever ${asked} was edited` : "";
    const judge = one.corrected ? `; the judge: ${plots.score(rate)}${rated}${before}${other}` : "";
    return `${plots.score(one.mean)} (${ends(one).map(plots.score).join(" to ")}${judge})`;
  };
  const within = (at) => ({ from, to }) => plots.seconds(from) < at && at < plots.seconds(to);
  const gapText = (gap) => {
    const runs = gap.runs ? `${gap.runs} ${gap.runs === 1 ? "run" : "runs"} measured too little` : "runs measured too little";
    const why = { not_measured: runs, no_runs: "no run ended" }[gap.why] || "older than the retention";
    return `${why} from ${plots.short.format(Date.parse(gap.from))} to ${plots.short.format(Date.parse(gap.to))}`;
  };

  const described = (drawn, shown) => {
    const { idx } = drawn.cursor;
    if (idx == null) return null;
    const at = drawn.data[0][idx];
    const found = [];
    for (const line of shown.lines) {
      const one = pointAt(line, at);
      if (!one) continue;
      found.push({ text: `${line.label} ${told(one)}`, swatch: plots.ink(line.ink), runs: runsOf(one) });
    }
    const gap = found.length ? null : shown.lines[0].gaps.find(within(at));
    if (!found.length && !gap) return null;
    const texts = [{ text: gap ? "No data" : plots.timeText(at), strong: true }, ...found];
    if (gap) texts.push({ text: gapText(gap) });
    for (const runs of new Set(found.map((one) => one.runs))) texts.push({ text: runs });
    const reach = (drawn.scales.x.max - drawn.scales.x.min) / 120;
    for (const mark of shown.lines[0].marks) {
      if (Math.abs(plots.seconds(mark.at) - at) < reach) texts.push({ text: `new index version ${mark.index_version.slice(0, 60)}` });
    }
    for (const edit of shown.lines[0].edits) {
      if (Math.abs(plots.seconds(edit) - at) < reach) texts.push({ text: EDITED });
    }
    for (const alert of shown.lines[0].alerts) {
      const [from, to] = [plots.seconds(alert.opened_at), alert.resolved_at ? plots.seconds(alert.resolved_at) : Infinity];
      if (from - reach < at && at < to + reach) texts.push({ text: `alert ${alert.rule} (${alert.severity}) ${Math.abs(at - from) < reach ? "opened" : Math.abs(at - to) < reach ? "resolved" : "was open"}` });
    }
    return texts;
  };

  // Gives the note under the chart, and what it is called for who cannot see it; fills the key and the list of events.
  const say = ({ lines }, key, list, spread, marks) => {
    const [first] = lines;
    const count = Math.max(...lines.map((line) => known(line).length));
    const points = `${count} ${count === 1 ? "point" : "points"}`;
    const items = [];
    const item = (kind, text, ink) => {
      const one = plots.make("li", text);
      const swatch = plots.make("span", "", { className: `swatch ${kind}` });
      if (ink) swatch.style.background = `${plots.ink(ink)}40`;
      one.prepend(swatch);
      items.push(one);
    };
    if (spread) item("spread", first.points.some(({ corrected }) => corrected) ? "95 % interval, by people’s labels" : "minimum to maximum of the averaged runs");
    for (const { usual, label, ink } of lines.length <= 2 ? lines : []) {
      if (!usual) continue;
      const name = lines.length > 1 ? ` for ${label}` : "";
      const values = usual.low === usual.high ? plots.score(usual.low) : `${plots.score(usual.low)} to ${plots.score(usual.high)}, 98 % of runs`;
      item("usual", `baseline${name}: ${values} (${usual.runs} runs)`, ink);
    }
    for (const bound of lines.flatMap((one) => one.lines)) {
      const where = bound.by ? `a drop by ${bound.by}, to ${plots.score(bound.value)}` : `${bound.bad} ${bound.value}`;
      item(`bound ${bound.severity}`, `rule ${spoken(bound.rule)}: ${bound.severity} ${where}`);
    }
    if (first.gaps.length) item("gap", `no data: ${first.gaps.length === 1 ? gapText(first.gaps[0]) : `${first.gaps.length} stretches, ${gapText(first.gaps.at(-1))} the last`}`);
    if (first.alerts.length) item("alert", `${first.alerts.length} ${first.alerts.length === 1 ? "alert" : "alerts"}, from opened to resolved; critical ones are filled`);
    const unnamed = marks.placed.filter(({ lane }) => lane < 0).length;
    if (first.marks.length) item("mark", `${first.marks.length === 1 ? "new index version" : `${first.marks.length} new index versions`}${unnamed ? `; ${unnamed === 1 ? "1 without a label" : `${unnamed} without a label`}, all in the list below` : ""}`);
    if (first.edits.length) item("mark edited", `${first.edits.length === 1 ? "suite edited" : `suite edited ${first.edits.length} times`}: numbers before and after are of other questions or expected chunks`);
    key.closest("details").hidden = !items.length;
    key.replaceChildren(...items);
    happened(first, list);
    const note = count
      ? `${points}${first.points.some(({ runs }) => runs > 1) ? ", most the mean of several runs. Click one or drag to look closer." : ". Click one for its run, drag to look closer."}`
      : "Nothing was measured in this period.";
    const name = `Chart of ${lines.map(({ label }) => label).join(" and ")}, ${points}. Arrow keys go from point to point, Enter opens its run. The table below has the same data.`;
    return { note, name };
  };

  const happened = ({ marks, edits, alerts }, list) => {
    const rows = [
      ...edits.map((at) => ({ at, nodes: [EDITED] })),
      ...marks.map(({ at, index_version: version }) => ({ at, nodes: ["index version ", plots.make("code", version)] })),
      ...alerts.flatMap(({ id, rule, severity, opened_at: opened, resolved_at: resolved }) => {
        const link = () => plots.make("a", spoken(rule), { href: `${plots.root}/alerts/${encodeURIComponent(id)}` });
        return [{ at: opened, nodes: [`${severity} alert `, link(), " opened"] }, ...(resolved ? [{ at: resolved, nodes: [`${severity} alert `, link(), " resolved"] }] : [])];
      }),
    ].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
    list.closest("details").hidden = !rows.length;
    list.replaceChildren(...rows.map(({ at, nodes }) => {
      const one = plots.make("li", `${plots.timeText(Date.parse(at) / 1000)}: `);
      one.append(...nodes);
      return one;
    }));
  };

  // Fills the table that says the same as the chart, the newest first.
  const fill = ({ lines }, table) => {
    const rows = new Map();
    lines.forEach((line, place) => {
      for (const one of line.points) {
        if (!rows.has(one.at)) rows.set(one.at, { one, values: [] });
        rows.get(one.at).values[place] = one;
      }
    });
    const value = (one) => (one ? `${told(one)}${one.unknown ? ", run unknown" : ""}` : "–");
    const head = plots.make("tr");
    head.append(...["Time", "Runs"].map((text) => plots.make("th", text, { scope: "col" })), ...lines.map(({ label }) => plots.make("th", label, { scope: "col", className: "number" })));
    table.tHead.replaceChildren(head);
    const body = [...rows].map(([at, { one, values }]) => {
      const row = plots.make("tr");
      const runs = plots.make("td");
      if (one.first_run && one.first_run === one.last_run) runs.append(plots.make("a", one.first_run, { href: `${plots.root}/runs/${encodeURIComponent(one.first_run)}` }));
      else runs.textContent = one.first_run ? `${one.first_run} to ${one.last_run}` : String(one.runs);
      row.append(plots.make("td", plots.timeText(plots.seconds(at))), runs, ...lines.map((_, place) => plots.make("td", value(values[place]), { className: "number" })));
      return { at: Date.parse(at), row };
    });
    for (const gap of lines[0].gaps) {
      const row = plots.make("tr", "", { className: "gap" });
      row.append(plots.make("td", plots.timeText(plots.seconds(gap.from))), plots.make("td", `– ${gapText(gap)}`, { colSpan: lines.length + 1 }));
      body.push({ at: Date.parse(gap.from) + 1, row });
    }
    table.tBodies[0].replaceChildren(...body.sort((a, b) => b.at - a.at).map(({ row }) => row));
  };

  return { described, ends, fill, known, pointAt, say, spoken };
})();
