// Says on the quality page that the report could not be made, where it was asked for and did not come.
"use strict";

(() => {
  const failed = ({ detail }) => {
    const progress = document.getElementById("making");
    if (!progress) return;
    const status = detail.xhr?.status;
    progress.textContent = `The report could not be made${status ? ` (HTTP ${status})` : ": the service did not answer"}. Load the page again to try once more.`;
    document.querySelector("#report progress")?.remove();
  };
  for (const event of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) document.addEventListener(event, failed);
})();
