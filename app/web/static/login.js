// A link from elsewhere arrives here without the session's cookie (SameSite=Strict), although there may be one:
// asked from this page the cookie is sent, and whoever is signed in goes on without typing the key again.
"use strict";

(async () => {
  const form = document.getElementById("login");
  if (!form || form.dataset.next === "/" || document.getElementById("message")) return;
  try {
    const response = await fetch("/v1/checks?limit=1");
    if (response.ok) location.replace(form.dataset.next);
  } catch {
    // Then the form is there.
  }
})();
