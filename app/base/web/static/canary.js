// A canary's page: the progress of a diagnosis, and tooltips of the band of states.
// Without it the forms are sent as forms, and the table holds what the band shows.
"use strict";

(() => {
  const form = document.getElementById("ask-why");
  const button = form.querySelector("button");
  const asking = document.getElementById("asking");
  const bar = asking.querySelector("progress");
  const status = asking.querySelector('[role="status"]');

  // An EventSource can only GET; the events are those of its format all the same.
  const events = async function* (response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const { event, data } = Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/s, 2)));
        yield [event, JSON.parse(data)];
      }
    }
  };

  const ask = async () => {
    const body = new URLSearchParams(new FormData(form));
    const response = await fetch(form.action, { method: "POST", body, headers: { accept: "text/event-stream" } });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    for await (const [event, data] of events(response)) {
      if (event === "refused") throw new Error(data.detail);
      if (event === "ended") return;
      bar.max = Math.max(data.of, 1);
      bar.value = data.done;
      status.textContent = data.done < data.of ? `Request ${data.done + 1} of ${data.of}…` : "Finding the cause…";
    }
    throw new Error("the connection was lost; the diagnosis may still go on");
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    bar.hidden = false;
    asking.hidden = false;
    status.textContent = "Starting the diagnosis…";
    try {
      await ask();
      status.textContent = "Diagnosis finished.";
      location.hash = "diagnosis";
      location.reload();
    } catch (error) {
      bar.hidden = true;
      status.textContent = `Diagnosis failed: ${error.message}`;
      button.disabled = false;
    }
  });

  // What came of trying is shown whatever its status, and read out.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.requestConfig.elt.id !== "try") return;
    const page = event.detail.xhr.getResponseHeader("content-type")?.startsWith("text/html");
    if (page) event.detail.shouldSwap = true;
  });
  document.body.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.requestConfig?.elt.id === "try") document.getElementById("just-now")?.focus();
  });

  // Pointed at, by mouse or key, a stretch says what it is, in the viewer's zone.
  const pointed = document.getElementById("pointed");
  const idle = pointed?.textContent;
  const when = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const tell = (stretch) => {
    const from = when.format(new Date(stretch.dataset.from));
    const until = stretch.dataset.until ? when.format(new Date(stretch.dataset.until)) : "now";
    const [what] = stretch.querySelector("title").textContent.split(", from run");
    pointed.textContent = `${what}: ${from} to ${until}`;
  };
  for (const stretch of document.querySelectorAll(".band .stretch")) {
    for (const event of ["mouseenter", "focus"]) stretch.addEventListener(event, () => tell(stretch));
    for (const event of ["mouseleave", "blur"]) stretch.addEventListener(event, () => { pointed.textContent = idle; });
  }
})();
