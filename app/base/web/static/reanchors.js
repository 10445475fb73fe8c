// Renamed chunks: a patch is saved as a file. Without it the patch stands on the page; try.js copies it.
"use strict";

for (const button of document.querySelectorAll("button[data-saves]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const text = document.getElementById(button.dataset.saves).textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    link.download = button.dataset.as;
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
