// Puts what stands in a block, such as a suggested mapping, onto the clipboard. Without it, a click selects it.
// Shows the note of what is chosen in a list, such as of a thin suite. Without it, the page has that of its first choice.
// Puts a value that is offered into its field. Without it, the form does so, and what was found is gone.
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
