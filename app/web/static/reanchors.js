// Renamed chunks: a patch is copied, or saved as a file. Without it the patch stands on the page.
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
