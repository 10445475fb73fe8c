// Makes a name of what is typed or chosen in other fields, until somebody types a name. Without it, the hint says what is asked.
"use strict";

for (const name of document.querySelectorAll("input[data-made-of]")) {
  const sources = name.dataset.madeOf.split(" ").map((id) => document.getElementById(id));
  const most = Number(name.dataset.most);
  const short = (text) => text.slice(0, most).replace(/-+$/, "");
  const made = () => {
    const texts = sources.map((one) => one.value.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, ""));
    return texts.every(Boolean) ? short(texts.join("-")) : "";
  };
  let last = name.value === "" || name.value === made() ? name.value : null;
  const follow = () => {
    if (last === null || name.value !== last) return;
    last = made();
    name.value = last;
  };
  name.addEventListener("input", () => (last = name.value === "" ? "" : null));
  for (const one of sources) for (const event of ["input", "change"]) one.addEventListener(event, follow);
  follow();
}
