// Asks for the key.

import { el, fill, notice } from "./dom.js";
import { key } from "./key.js";

const WANTED = { admin: "the admin key (DUET_ADMIN_KEY)", client: "an API key; it may look, and change nothing" };

/** `access` is what the gateway says of the key that was sent, if one was; `entered` is called with a new one. */
export function gate(main, access, entered) {
  const input = el("input", { type: "password", autocomplete: "off", required: true, spellcheck: false });
  const wrong = key.get() !== null && notice(access.why ?? "This key does not open this page.");
  const form = el(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        key.set(input.value.trim());
        entered();
      },
    },
    el("h1", {}, "This gateway wants a key"),
    el("p", { className: "tone-soft" }, `Expected is ${WANTED[access.wants]}. It is kept for this tab only.`),
    wrong,
    el("label", {}, "Key", input),
    el("button", { className: "strong" }, "Open"),
  );
  fill(main, el("div", { className: "panel gate" }, form));
  input.focus();
}
