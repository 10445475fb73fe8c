// Puts what stands in a block, such as a suggested mapping, onto the clipboard. Without it, a click selects it.
// Shows the note of what is chosen in a list, such as of a thin suite. Without it, the page has that of its first choice.
// Puts a value that is offered into its field. Without it, the form does so, and what was found is gone.
// Adds what was made in another tab to the lists of a form, keeping what is chosen. Without it, the next page has it.
"use strict";

for (const button of document.querySelectorAll("button[data-copies]")) {
  if (!navigator.clipboard) break; // not on a plain http address other than this machine's
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => (button.textContent = "Copy"), 2_000);
  });
}

for (const button of document.querySelectorAll("button[data-fills]")) {
  button.addEventListener("click", (event) => {
    const field = button.form.elements[button.dataset.fills];
    event.preventDefault();
    field.value = button.value;
    field.focus();
  });
}

for (const notes of document.querySelectorAll("[id^='notes-']")) {
  const list = document.getElementById(notes.id.replace("notes-", "f-"));
  list.addEventListener("change", () => {
    for (const note of notes.children) note.hidden = note.dataset.noteOf !== list.value;
  });
}

const lists = document.querySelectorAll("[data-made-elsewhere]");
if (lists.length) {
  window.addEventListener("focus", async () => {
    const answer = await fetch(location.href).catch(() => null);
    if (!answer?.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const list of lists) {
      const chosen = new Map([...list.querySelectorAll("input")].map((one) => [one.value, one.checked]));
      const value = list.value;
      const fresh = page.getElementById(list.id);
      if (!fresh) continue;
      list.replaceChildren(...fresh.childNodes);
      if (list.matches("select")) list.value = value || fresh.value;
      for (const one of list.querySelectorAll("input")) one.checked = chosen.get(one.value) ?? true;
    }
  });
}
