// Runs: an address never carries filters that are not set. Without it filtering is a form that loads the page anew.
"use strict";

(() => {
  document.body.addEventListener("htmx:configRequest", (event) => {
    if (!event.detail.elt.classList.contains("narrowing")) return;
    for (const [name, value] of [...event.detail.formData.entries()]) {
      if (value === "") event.detail.formData.delete(name);
    }
  });
})();
