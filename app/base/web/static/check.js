// Opens the fold an address points at, such as #why, and closes a menu that somebody turns away from.
"use strict";

(() => {
  const unfold = () => {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target?.scrollIntoView();
  };
  const shut = (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      const away = event.type === "keydown" ? event.key === "Escape" : !menu.contains(event.target);
      if (!away) continue;
      menu.open = false;
      if (event.type === "keydown") menu.querySelector("summary").focus();
    }
  };
  addEventListener("hashchange", unfold);
  document.addEventListener("click", shut);
  document.addEventListener("keydown", shut);
  unfold();
})();
