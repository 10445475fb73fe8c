// What pages do beyond being read: times in the viewer's zone, news as they come, progress, and runs on demand.
// Without it every page still says everything, in UTC.
"use strict";

(() => {
  const TICK = 10_000;
  const UTC = /(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC/;
  const root = document.documentElement.dataset.path; // of the service within its host; "" = it is the host's
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" });
  const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
  const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });
  const csrf = document.querySelector('meta[name="csrf"]').content;

  // Without the full stop of "min.", which would stand beside that of a sentence.
  const inUnits = (count, unit) => relative.format(Math.trunc(count), unit).replace(".", "");
  const ago = (moment) => {
    const seconds = (moment - Date.now()) / 1000;
    for (const [unit, size, least] of [["day", 86_400, 2], ["hour", 3_600, 2], ["minute", 60, 1]]) {
      if (Math.abs(seconds) >= least * size) return inUnits(seconds / size, unit); // "in 119 min": 1 hr would be short
    }
    if (Math.abs(seconds) >= 5) return inUnits(seconds, "second");
    return seconds > 0 ? "now" : "just now";
  };
  const absolute = (moment, ofDay = clock) =>
    (moment.toDateString() === new Date().toDateString() ? ofDay : day).format(moment);

  const tellTimes = () => {
    for (const element of document.querySelectorAll("time[data-when]")) {
      const moment = new Date(element.dateTime);
      const style = element.dataset.when;
      const text = absolute(moment, ["minute", "since"].includes(style) ? minute : clock);
      const wanted = { both: `${ago(moment)} (${text})`, since: `${text}, ${ago(moment)}`, brief: ago(moment) }[style] ?? text;
      if (element.textContent !== wanted) element.textContent = wanted;
      if (!element.title) element.title = full.format(moment);
    }
    for (const option of document.querySelectorAll("option")) { // which holds text alone
      const local = option.textContent.replace(UTC, (_, date, time) => absolute(new Date(`${date}T${time}Z`), minute));
      if (local !== option.textContent) option.textContent = local;
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

  // --- Ctrl-K, or / where nothing is being typed, goes to the search ---
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
    const isAsked = (event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !isTyping);
    const field = document.getElementById("jump");
    if (!isAsked || !field) return;
    event.preventDefault();
    field.focus();
    field.select();
  });

  // --- what happens, as it happens: one stream for the page, none while nobody looks at it ---
  // An element with data-live="run_ended alert_changed" is sent the event "news" whenever one of these comes, after the
  // stream was lost for a while, and every data-every seconds; with data-check="slug" only for what is of that check.
  // Most have hx-trigger="news" and fetch themselves anew.

  const AGAIN = 1_000;
  const LINGER = 4_500; // who only passes through opens no stream: of connections a browser has six for all its tabs
  const listeners = () => [...document.querySelectorAll("[data-live]")];
  const isHeld = (element) => {
    const selection = getSelection();
    return !selection.isCollapsed && element.contains(selection.anchorNode);
  };
  const waiting = new Set();
  let pending = 0;
  const tellAll = () => {
    pending = 0;
    for (const id of [...waiting]) {
      const element = document.getElementById(id);
      if (element && isHeld(element)) continue; // what somebody is copying is not pulled away
      waiting.delete(id);
      if (element) htmx.trigger(element, "news");
    }
    if (waiting.size) pending = setTimeout(tellAll, AGAIN);
  };
  const tell = (elements) => {
    for (const element of elements) waiting.add(element.id);
    if (waiting.size) pending ||= setTimeout(tellAll, 200); // several things at once are fetched once
  };
  const concerns = (element, name, what) =>
    element.dataset.live.split(" ").includes(name) && [undefined, what.check].includes(element.dataset.check);

  let stream = null;
  let wasLost = true; // the stream does not repeat what came before it
  let retry = 0;
  const listen = () => {
    clearTimeout(retry);
    if (stream || document.hidden || !listeners().length) return;
    stream = new EventSource(`${root}/v1/events`);
    for (const name of ["run_ended", "alert_changed"]) {
      stream.addEventListener(name, (event) => {
        const what = JSON.parse(event.data);
        tell(listeners().filter((element) => concerns(element, name, what)));
      });
    }
    stream.addEventListener("open", () => {
      if (wasLost) tell(listeners());
      wasLost = false;
    });
    stream.addEventListener("error", () => {
      wasLost = true;
      if (stream.readyState !== EventSource.CLOSED) return; // it comes back by itself
      stream = null;
      retry = setTimeout(listen, TICK); // refused: too many, or no database
    });
  };
  const hush = () => {
    clearTimeout(retry);
    stream?.close();
    stream = null;
    wasLost = true;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? hush() : listen()));
  addEventListener("pagehide", hush);
  addEventListener("pageshow", (event) => event.persisted && listen());
  retry = setTimeout(listen, LINGER);

  const due = new Map(); // when an element is to be fetched again though nothing was heard
  setInterval(() => {
    for (const element of document.hidden ? [] : listeners()) {
      const every = Number(element.dataset.every) * 1_000;
      const at = due.get(element.id) ?? Date.now() + every;
      if (every && at <= Date.now()) tell([element]);
      due.set(element.id, at <= Date.now() ? Date.now() + every : at);
    }
  }, 1_000);

  // What comes back the same is not put in again, so nothing is read out twice and no row is lost under the pointer.
  const last = new Map();
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, serverResponse, isError, requestConfig } = event.detail;
    if (isError) return;
    if (requestConfig.triggeringEvent?.type === "news" && last.get(target.id) === serverResponse) {
      event.detail.shouldSwap = false;
    }
    last.set(target.id, serverResponse);
  });
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    if (event.detail.target.textContent.trim() === event.detail.fragment.textContent.trim()) event.detail.shouldSwap = false;
  });
  // Where only what is wrong with a field comes back, the field is marked here. A name that is proposed is one click away.
  const markWrong = () => {
    for (const wrong of document.querySelectorAll(".field > .wrong[id]")) {
      const field = wrong.parentElement.querySelector(`[aria-describedby~="${wrong.id}"]`);
      if (wrong.textContent) field?.setAttribute("aria-invalid", "true");
      else field?.removeAttribute("aria-invalid");
    }
    for (const button of document.querySelectorAll("button[data-takes][hidden]")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        const field = document.getElementById(button.dataset.takes);
        field.value = button.value;
        field.removeAttribute("aria-invalid");
        field.dispatchEvent(new Event("input", { bubbles: true }));
        field.focus();
        button.closest(".wrong").textContent = "";
      });
    }
  };
  document.addEventListener("htmx:afterSettle", () => {
    tellTimes();
    markWrong();
  });

  // Filters: an address as short as it can be.
  document.addEventListener("htmx:configRequest", (event) => {
    if (!event.target.matches?.("form[data-tidy]")) return;
    for (const [name, value] of [...event.detail.formData]) if (!value) event.detail.formData.delete(name);
  });

  // A banner says that the service is out of reach and of when the figures are.
  const lost = document.getElementById("unreachable");
  let seenAt = new Date();
  const outOfReach = (isLost) => {
    if (!isLost) seenAt = new Date();
    if (lost.hidden !== isLost) return;
    document.getElementById("unreachable-since").textContent = absolute(seenAt);
    lost.hidden = !isLost;
    document.body.classList.toggle("is-unreachable", isLost);
    if (!isLost) tell(listeners());
  };
  // Every page asks for a sign of life: an event stream that breaks off says nothing by itself.
  const BEAT = 4_000;
  let isGone = false;
  const beat = async () => {
    if (document.hidden) return;
    let isUp = false;
    try {
      isUp = (await fetch(`${root}/livez`, { cache: "no-store", signal: AbortSignal.timeout(BEAT) })).ok;
    } catch {
      // No answer, or none in time.
    }
    if (!isUp) outOfReach(true);
    else if (isGone) outOfReach(false); // what a request of the page found is ended by the next that succeeds
    else if (lost.hidden) seenAt = new Date();
    isGone = !isUp;
  };
  setInterval(beat, BEAT);
  document.addEventListener("visibilitychange", beat);
  for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    document.addEventListener(name, (event) => {
      if (event.detail.xhr?.status === 401) location.reload(); // signed out meanwhile
      else outOfReach(true);
    });
  }
  document.addEventListener("htmx:afterOnLoad", (event) => event.detail.successful && outOfReach(false));

  // --- progress: an element with data-follows="/v1/…/events" shows how far it is, then how it ended ---

  const follow = (element) =>
    new Promise((resolve) => {
      const bar = element.querySelector("progress");
      const text = element.querySelector(".progress-text");
      const unit = element.dataset.unit || "probes done";
      const source = new EventSource(element.dataset.follows);
      source.addEventListener("progress", (event) => {
        const { done, total, failed, status } = JSON.parse(event.data);
        if (total) {
          bar.max = total;
          bar.value = done;
        }
        const sums = total ? `${done} of ${total} ${unit}${failed ? `, ${failed} failed` : ""}` : "";
        text.textContent = sums ? `${status === "queued" ? "Queued" : "Running"}: ${sums}` : "Queued";
      });
      source.addEventListener("ended", (event) => {
        source.close();
        resolve(JSON.parse(event.data));
      });
      source.addEventListener("error", () => {
        if (source.readyState === EventSource.CLOSED) setTimeout(() => resolve(follow(element)), TICK / 2);
      });
      setTimeout(() => {
        if (bar.position < 0) text.textContent = "Still queued. Is a worker running, and the run before it over?";
      }, 2 * TICK);
    });

  // The page of a run under way is loaded again when it has ended, and so is that of a check which had no run to show
  // or whose reader pressed the button, unless a form is being filled in or something copied. Else it only says so.
  const isAtWork = () => isHeld(document.body) || document.activeElement.matches("input, textarea, select");
  const tellEnd = (element, ended, isAwaited) => {
    if (isAwaited && ended.run && !isAtWork()) return location.reload();
    const link = document.createElement("a");
    link.href = `${root}/runs/${encodeURIComponent(ended.run)}`;
    link.textContent = `Run ${ended.run}`;
    const text = element.querySelector(".progress-text");
    text.replaceChildren(link, ` ended: ${ended.verdict || ended.status || "it is gone"}.`);
    element.parentElement.replaceChildren(element);
    element.querySelector("progress").remove();
    if (newer) htmx.trigger(newer, "news");
    return undefined;
  };
  const form = document.getElementById("run-form");
  const newer = document.getElementById("newer");
  const runNow = async (event) => {
    event.preventDefault();
    const button = document.getElementById("run-now");
    const state = document.getElementById("run-state");
    button.disabled = true;
    try {
      const run = await ask(`${root}/v1/checks/${encodeURIComponent(form.dataset.check)}/runs`, {
        method: "POST",
        headers: { "content-type": "application/json", "x-csrf-token": csrf },
        body: JSON.stringify({ trigger: "page" }),
      });
      state.replaceChildren(document.getElementById("run-progress").content.cloneNode(true));
      const element = state.firstElementChild;
      element.dataset.follows = `${root}/v1/runs/${encodeURIComponent(run.id)}/events`;
      tellEnd(element, await follow(element), true);
    } catch (error) {
      const text = document.createElement("p");
      text.setAttribute("role", "status");
      text.textContent = `The run could not be started: ${error.message}`;
      state.replaceChildren(text);
    }
    button.disabled = false;
  };
  if (form) form.addEventListener("submit", runNow);
  for (const element of document.querySelectorAll("[data-follows]")) {
    const isAside = element.parentElement.id === "run-state";
    const isFirst = newer?.dataset.run === "";
    follow(element).then((ended) =>
      isAside ? element.isConnected && tellEnd(element, ended, isFirst) : location.reload());
  }

  // A page of a check says when it is outdated; it does not reload under the reader's eyes, unless it has no run to show.
  if (newer) newer.addEventListener("news", async () => {
    try {
      const run = await ask(`${root}/v1/checks/${encodeURIComponent(newer.dataset.check)}/health`);
      if (newer.dataset.run === "" && !isAtWork()) return location.reload();
      newer.hidden = run.id === newer.dataset.run;
    } catch {
      // No run yet, or out of reach: there is nothing to say.
    }
    return undefined;
  });

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
  markWrong();
  setInterval(tellTimes, TICK);
})();
