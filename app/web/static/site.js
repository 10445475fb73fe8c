// What pages do beyond being read: times in the viewer's zone, a live overview, and runs on demand.
// Without it every page still says everything, in UTC.
"use strict";

(() => {
  const TICK = 10_000;
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" });
  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
  const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });
  const csrf = document.querySelector('meta[name="csrf"]').content;

  const ago = (moment) => {
    const seconds = (moment - Date.now()) / 1000;
    for (const [unit, size] of [["day", 86_400], ["hour", 3_600], ["minute", 60]]) {
      if (Math.abs(seconds) >= size) return relative.format(Math.trunc(seconds / size), unit);
    }
    return Math.abs(seconds) < 5 ? "now" : relative.format(Math.trunc(seconds), "second");
  };
  const absolute = (moment) =>
    (moment.toDateString() === new Date().toDateString() ? clock : day).format(moment);

  const tellTimes = () => {
    for (const element of document.querySelectorAll("time[data-when]")) {
      const moment = new Date(element.dateTime);
      const text = absolute(moment);
      const wanted = element.dataset.when === "both" ? `${ago(moment)} (${text})` : text;
      if (element.textContent !== wanted) element.textContent = wanted;
      if (!element.title) element.title = full.format(moment);
    }
    const zone = document.querySelector("[data-zone]");
    if (zone) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
  };

  const ask = async (address, options = {}) => {
    const response = await fetch(address, { ...options, headers: { accept: "application/json", ...options.headers } });
    const body = await response.json();
    if (!response.ok) throw new Error(body.detail || `HTTP ${response.status}`);
    return body;
  };
  const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  const isEnded = (run) => run.status !== "queued" && run.status !== "running";

  // The overview follows what happens, except under the hands of somebody who is using it.
  const live = document.getElementById("live");
  const refresh = async () => {
    if (document.hidden || live.contains(document.activeElement)) return;
    const lost = document.getElementById("lost");
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" } });
      if (response.redirected) return location.reload();
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      live.innerHTML = page.getElementById("live").innerHTML;
      lost.hidden = true;
      lost.dataset.since = "";
      tellTimes();
    } catch {
      lost.dataset.since ||= absolute(new Date());
      document.getElementById("lost-since").textContent = lost.dataset.since;
      lost.hidden = false;
    }
  };
  if (live) setInterval(refresh, Number(live.dataset.refresh) * 1000);

  const button = document.getElementById("run-now");
  const runNow = async () => {
    const state = document.getElementById("run-state");
    const check = encodeURIComponent(button.dataset.check);
    button.disabled = true;
    state.textContent = "Queueing a run…";
    try {
      let run = await ask(`/v1/checks/${check}/runs`, {
        method: "POST",
        headers: { "content-type": "application/json", "x-csrf-token": csrf },
        body: JSON.stringify({ trigger: "api" }),
      });
      for (let looks = 0; !isEnded(run); looks += 1) {
        const patience = looks > 30 && run.status === "queued" ? " Is a worker running?" : "";
        state.textContent = `Run ${run.id} is ${run.status}…${patience}`;
        await pause(looks < 20 ? 500 : 2_000);
        run = await ask(`/v1/runs/${encodeURIComponent(run.id)}`);
      }
      state.textContent = `Run ${run.id} ended: ${run.verdict || run.status}.`;
      location.reload();
    } catch (error) {
      state.textContent = `It could not be run: ${error.message}`;
      button.disabled = false;
    }
  };
  if (button) button.addEventListener("click", runNow);

  // A page of a check says when it is outdated; it does not reload under the reader's eyes.
  const newer = document.getElementById("newer");
  const lookForNewer = async () => {
    if (document.hidden || !newer.hidden || button?.disabled) return;
    try {
      const run = await ask(`/v1/checks/${encodeURIComponent(newer.dataset.check)}/health`);
      newer.hidden = run.id === newer.dataset.run;
    } catch {
      // No run yet, or out of reach: there is nothing to say.
    }
  };
  if (newer) setInterval(lookForNewer, TICK);

  const underWay = document.getElementById("under-way");
  const followRun = async () => {
    for (;;) {
      await pause(1_000);
      try {
        if (isEnded(await ask(`/v1/runs/${encodeURIComponent(underWay.dataset.run)}`))) return location.reload();
      } catch {
        // Out of reach for now.
      }
    }
  };
  if (underWay) followRun();

  // One tick for all of a form.
  for (const all of document.querySelectorAll("input[data-ticks]")) {
    const ticks = [...all.form.querySelectorAll(`input[name="${all.dataset.ticks}"]`)];
    const tell = () => {
      const ticked = ticks.filter((tick) => tick.checked).length;
      all.checked = ticked === ticks.length;
      all.indeterminate = ticked > 0 && ticked < ticks.length;
    };
    all.addEventListener("change", () => ticks.forEach((tick) => { tick.checked = all.checked; }));
    ticks.forEach((tick) => tick.addEventListener("change", tell));
  }

  tellTimes();
  setInterval(tellTimes, TICK);
})();
