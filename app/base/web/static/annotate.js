// Annotating by keyboard or thumb: a grade is stored before the next chunk is shown, which comes with the answer.
// Without it every button is a form of its own.
"use strict";

(() => {
  const desk = document.getElementById("desk");
  if (!desk) return;
  const form = document.getElementById("grading");
  const at = (id) => document.getElementById(id);
  const csrf = document.querySelector('meta[name="csrf"]').content;
  const path = `${document.documentElement.dataset.path}/v1/tasks/${encodeURIComponent(desk.dataset.task)}`;
  const who = desk.dataset.annotator ? { annotator: desk.dataset.annotator } : {};
  const IDLE_MOST = 300_000; // longer than this nobody looked

  const token = form.querySelector("input[name=item]"); // `form.elements.item` is a function of every form
  let item = token.value;
  let saving = false;
  let seen = 0; // milliseconds that the chunk was visible before `since`
  let since = performance.now();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) seen += performance.now() - since;
    since = performance.now();
  });
  const seconds = () => Math.round(Math.min(IDLE_MOST, seen + performance.now() - since) / 100) / 10;

  const showBeside = ({ question, expected_answer: expected, contexts }) => {
    at("question").textContent = question;
    at("expected").textContent = expected ?? "";
    at("expected-label").hidden = expected === null;
    at("contexts-label").hidden = !contexts.length;
    at("contexts").replaceChildren(
      ...contexts.map((text) => Object.assign(document.createElement("li"), { textContent: text })),
    );
    at("beside").hidden = expected === null && !contexts.length;
    at("beside").scrollTop = 0;
  };

  const word = (text, quiet) => Object.assign(document.createElement("span"), {
    textContent: text, className: quiet ? "quiet" : "",
  });

  const showAsked = ({ vars, history: turns }) => {
    at("turns").replaceChildren(
      ...turns.map(({ role, content }) => {
        const turn = document.createElement("li");
        turn.append(word(`${role}:`, true), " ", word(content));
        return turn;
      }),
    );
    at("conversation").hidden = !turns.length;
    const asked = Object.entries(vars).map(([name, value]) => `${name}: ${value}`);
    at("vars").textContent = asked.join(", ");
    at("asked-as").hidden = !asked.length;
  };

  const showPair = (pair) => {
    for (const side of ["left", "right"]) {
      at(side).replaceChildren(
        ...pair[side].map((text) => Object.assign(document.createElement("li"), { textContent: text })),
      );
      at(`${side}-empty`).hidden = pair[side].length > 0;
      at(side).parentElement.scrollTop = 0;
    }
  };

  const show = (found) => {
    item = found.item ? found.item.id : "";
    form.hidden = !found.item;
    at("finished").hidden = Boolean(found.item);
    at("with-others").hidden = !found.progress.with_others;
    at("all-done").hidden = found.progress.with_others > 0;
    if (found.item) {
      token.value = item;
      at("query").textContent = found.item.query;
      showAsked(found.item);
      at("text").textContent = found.item.text;
      at("chunk").scrollTop = 0;
      if (found.item.answer) showBeside(found.item.answer);
      if (found.item.pair) showPair(found.item.pair);
    }
    for (const button of form.querySelectorAll("button[aria-pressed]")) button.removeAttribute("aria-pressed");
    const { graded, skipped, left, seconds_left: time } = found.progress;
    const done = graded + skipped;
    at("done").max = done + left;
    at("done").value = done;
    const minutes = time === null || !left ? "" : `, about ${Math.max(1, Math.round(time / 60))} min left`;
    at("told").textContent = `${done} of ${done + left} done${minutes}`;
    for (const button of desk.querySelectorAll('button[value="undo"]')) button.disabled = !done;
    if (location.search) history.replaceState(null, "", location.pathname);
    [seen, since] = [0, performance.now()];
  };

  const send = async (answer) => {
    if (saving || (answer !== "undo" && !item)) return;
    saving = true;
    desk.classList.add("saving");
    const said = answer === "skip" ? { skip: true } : { grade: Number(answer) };
    const [method, address, body] = answer === "undo"
      ? ["POST", `${path}/undo`, who]
      : ["PUT", `${path}/items/${item}/annotation`, { ...said, seconds: seconds(), ...who }];
    try {
      const response = await fetch(address, {
        method, body: JSON.stringify(body), headers: { "content-type": "application/json", "x-csrf-token": csrf },
      });
      const found = await response.json();
      if (!response.ok) throw new Error(found.errors?.[0]?.message || found.detail || `HTTP ${response.status}`);
      at("unsaved").hidden = true;
      show(found);
    } catch (error) {
      at("unsaved").textContent = `Not saved: ${error.message}. Try again.`;
      at("unsaved").hidden = false;
    } finally {
      saving = false;
      desk.classList.remove("saving");
    }
  };

  for (const one of desk.querySelectorAll("form")) {
    one.addEventListener("submit", (event) => {
      event.preventDefault();
      send(event.submitter?.value ?? "");
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.target.closest?.("input:not([type=hidden]), textarea, select")) return;
    const answer = { Backspace: "undo", s: "skip", S: "skip" }[event.key] ?? event.key;
    const button = [...desk.querySelectorAll("button[name=answer]")].find(
      (one) => one.value === answer && !one.disabled && one.offsetParent,
    );
    if (!button) return;
    event.preventDefault();
    send(answer);
  });
})();
