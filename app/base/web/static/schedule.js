// Says a cron in words, with the next dates, while it is typed, or a day and an hour chosen in its place; and proposes the
// viewer's time zone for these. Without it, the page says so after the form was sent, and the zone is UTC.
"use strict";

for (const words of document.querySelectorAll("output[data-cron]")) {
  const fields = words.closest("form").elements;
  const [cron, zone] = [fields[words.dataset.cron], fields[words.dataset.cronZone]];
  const [day, hour] = [fields[words.dataset.day], fields[words.dataset.hour]];
  let waits, newest = 0;
  const follow = async () => {
    const mine = ++newest;
    const text = day?.value.includes("*") ? `0 ${hour.value} ${day.value}` : cron.value;
    const query = new URLSearchParams({ cron: text, timezone: zone.value });
    const answer = await fetch(`${document.documentElement.dataset.path}/cron-words?${query}`).catch(() => null);
    const said = answer?.ok ? await answer.text() : "";
    if (mine === newest) words.textContent = said;
  };
  // Where a cron is one of two, as of a check, it is chosen by typing it.
  const choice = cron.closest(".field").querySelector("input[type='radio']");
  cron.addEventListener("input", () => choice && (choice.checked = true));
  day?.addEventListener("input", () => (zone.value ||= Intl.DateTimeFormat().resolvedOptions().timeZone || ""));
  for (const field of [cron, zone, day, hour]) {
    field?.addEventListener("input", () => {
      clearTimeout(waits);
      waits = setTimeout(follow, 300);
    });
  }
}
