// Says a cron in words, with the next dates, while it is typed. Without it, the page says so after the form was sent.
"use strict";

for (const words of document.querySelectorAll("output[data-cron]")) {
  const fields = words.closest("form").elements;
  const [cron, zone] = [fields[words.dataset.cron], fields[words.dataset.cronZone]];
  let waits, newest = 0;
  const follow = async () => {
    const mine = ++newest;
    const query = new URLSearchParams({ cron: cron.value, timezone: zone.value });
    const answer = await fetch(`${document.documentElement.dataset.path}/cron-words?${query}`).catch(() => null);
    const text = answer?.ok ? await answer.text() : "";
    if (mine === newest) words.textContent = text;
  };
  // Where a cron is one of two, as of a check, it is chosen by typing it.
  const choice = cron.closest(".field").querySelector("input[type='radio']");
  cron.addEventListener("input", () => choice && (choice.checked = true));
  for (const field of [cron, zone]) {
    field.addEventListener("input", () => {
      clearTimeout(waits);
      waits = setTimeout(follow, 300);
    });
  }
}
