// Moving through an answer by keyboard, and telling in it what the paths read. What is clicked goes to the server,
// which says what it means; without this file every value is a button of the form all the same.
"use strict";

(() => {
  const form = document.querySelector("form.editor");
  if (!form) return;
  const tree = () => form.querySelector(".tree");
  const nodes = () => [...tree().querySelectorAll("button.node")].filter((node) => node.offsetParent);

  const rove = () => {
    if (!tree()) return;
    const all = [...tree().querySelectorAll("button.node")];
    const current = all.find((node) => node.tabIndex === 0 && node.dataset.roving) || all[0];
    for (const node of all) {
      node.tabIndex = node === current ? 0 : -1;
      node.dataset.roving = "yes";
    }
    // The arrow keys open and close what is folded, so the whole tree is one stop of the Tab key.
    for (const summary of tree().querySelectorAll("summary")) summary.tabIndex = -1;
  };

  const focus = (node) => {
    if (!node) return;
    for (const other of tree().querySelectorAll("button.node")) other.tabIndex = -1;
    node.tabIndex = 0;
    node.focus();
  };

  const step = (node, key) => {
    const seen = nodes();
    const place = seen.indexOf(node);
    const inside = node.parentElement.querySelector(":scope > details");
    const outer = node.parentElement.parentElement.closest("li");
    switch (key) {
      case "ArrowDown": return focus(seen[place + 1]);
      case "ArrowUp": return focus(seen[place - 1]);
      case "Home": return focus(seen[0]);
      case "End": return focus(seen.at(-1));
      case "ArrowRight":
        if (inside && !inside.open) inside.open = true;
        else if (node.parentElement.querySelector("ul button.node")) focus(seen[place + 1]);
        return undefined;
      default: // ArrowLeft
        if (inside && inside.open) inside.open = false;
        else if (outer) focus(outer.querySelector("button.node"));
        return undefined;
    }
  };

  const KEYS = ["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Home", "End"];
  form.addEventListener("keydown", (event) => {
    const node = event.target.closest("button.node");
    if (!node || !KEYS.includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    step(node, event.key);
  });

  // In the query, Enter asks; everywhere else in the form it reads the answer there is.
  form.addEventListener("keydown", (event) => {
    const ask = form.querySelector('button[value="ask"]');
    if (event.key !== "Enter" || event.target.name !== "query" || !ask || ask.disabled) return;
    event.preventDefault();
    ask.click();
  });

  const mark = () => {
    const table = form.querySelector("#marks");
    if (!table || !tree()) return;
    const known = new Map([...table.children].map((one) => [one.dataset.place, one]));
    for (const marks of tree().querySelectorAll(".marks")) {
      const wanted = known.get(marks.dataset.place);
      marks.replaceChildren(...(wanted ? [...wanted.children].map((one) => one.cloneNode(true)) : []));
    }
  };

  form.addEventListener("focusin", (event) => {
    const node = event.target.closest("button.node");
    if (node && node.tabIndex !== 0) focus(node);
  });
  // After every exchange of a part of the page, whichever it was.
  document.body.addEventListener("htmx:afterSettle", () => {
    rove();
    mark();
  });
  rove();
})();
