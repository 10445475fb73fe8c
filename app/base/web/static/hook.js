// Makes a signing secret of 32 random bytes and shows it, to be copied to the receiver. Without it, the hint says what
// one looks like.
"use strict";

for (const button of document.querySelectorAll("button[data-generates]")) {
  const field = document.getElementById(button.dataset.generates);
  const notice = document.getElementById("generated");
  button.hidden = false;
  button.addEventListener("click", () => {
    const bytes = crypto.getRandomValues(new Uint8Array(32));
    field.type = "text";
    field.value = `whsec_${btoa(String.fromCharCode(...bytes))}`;
    field.focus();
    field.select();
    notice.textContent = "Copy it to the receiver now: after saving it is not shown again.";
  });
}
