// A canary's page: why is asked with its progress shown, and the band of states says what is pointed at.
// Without it the forms are sent as forms, and the table holds what the band shows.
"use strict";

(() => {
  const form = document.getElementById("ask-why");
  const button = form.querySelector("button");
  const asking = document.getElementById("asking");
  const bar = asking.querySelector("progress");
  const said = asking.querySelector('[role="status"]');

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
    for await (const [event, told] of events(response)) {
      if (event === "refused") throw new Error(told.detail);
      if (event === "ended") return;
      bar.max = Math.max(told.of, 1);
      bar.value = told.done;
      said.textContent = told.done < told.of ? `Asking ${told.done + 1} of ${told.of}…` : "Working out the cause…";
    }
    throw new Error("the connection was lost; the retriever may still be asked");
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    bar.hidden = false;
    asking.hidden = false;
    said.textContent = "Beginning to ask…";
    try {
      await ask();
      said.textContent = "The cause is known.";
      location.hash = "diagnosis";
      location.reload();
    } catch (error) {
      bar.hidden = true;
      said.textContent = `It could not be told: ${error.message}`;
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
