// A link from elsewhere arrives here without the session's cookie (SameSite=Strict), although there may be one:
// asked from this page the cookie is sent, and whoever is signed in goes on without typing the key again.
"use strict";

(async () => {
  const form = document.getElementById("login");
  // A link of invitation holds a key behind the #, which no server sees and no log writes.
  const invited = new URLSearchParams(location.hash.slice(1)).get("key");
  if (form && invited) {
    history.replaceState(null, "", location.pathname + location.search);
    form.elements.key.value = invited;
    form.submit();
    return;
  }
  if (!form || form.dataset.next === "/" || document.getElementById("message")) return;
  try {
    const response = await fetch(location.href); // this very page, which also answers whoever is not signed in
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (page.getElementById("go-on")) location.replace(document.documentElement.dataset.path + form.dataset.next);
  } catch {
    // Then the form is there.
  }
})();
