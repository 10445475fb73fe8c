// A new silence is written in the viewer's own time zone. Without this it is UTC, as the field says.
"use strict";

(() => {
  const zone = document.querySelector("#silence input[name='timezone']");
  const fresh = document.getElementById("zone-of-viewer");
  if (zone && fresh && zone.value === "UTC" && !new URLSearchParams(location.search).has("timezone")) {
    zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  }
})();
