// Asks for one more engine.

import { call } from "./api.js";
import { el, fill, notice } from "./dom.js";

const ROLES = ["prefill", "decode", "both", "talker", "code2wav"];

export function askForEngine({ added }) {
  const trouble = el("div");
  const url = el("input", { type: "url", required: true, placeholder: "http://10.0.0.3:8200", spellcheck: false });
  const role = el("select", {}, ROLES.map((name) => el("option", { value: name }, name)));
  const form = el(
    "form",
    { onsubmit: submit },
    el("h2", { id: "add-title" }, "Add an engine"),
    el("p", { className: "tone-soft" }, "It gets requests on every replica once it has passed a health check."),
    trouble,
    el("label", {}, "Base URL", url),
    el("label", {}, "Role", role),
    el(
      "menu",
      {},
      el("button", { type: "button", className: "quiet", onclick: () => dialog.close() }, "Leave it"),
      el("button", { className: "strong" }, "Add"),
    ),
  );
  const dialog = el("dialog", { "aria-labelledby": "add-title", onclose: () => dialog.remove() }, form);

  async function submit(event) {
    event.preventDefault();
    try {
      await call("engines", { method: "POST", body: { url: url.value.trim(), role: role.value } });
      dialog.close();
      added();
    } catch (error) {
      fill(trouble, notice(error.message));
    }
  }

  document.body.append(dialog);
  dialog.showModal();
}
