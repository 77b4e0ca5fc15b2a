// Settings as this replica resolved them.

import { call } from "./api.js";
import { el, fill, notice } from "./dom.js";

export function settingsView(main, { refused }) {
  const aside = el("p", { className: "aside" });
  const body = el("tbody");
  const trouble = el("div");
  const head = ["Setting", "Value", "What it is"].map((name) => el("th", { scope: "col" }, name));
  fill(
    main,
    el("div", { className: "head" }, el("h1", {}, "Settings"), aside),
    trouble,
    el(
      "div",
      { className: "panel scroll" },
      el("table", { className: "stacked" }, el("thead", {}, el("tr", {}, head)), body),
    ),
  );
  call("config")
    .then(({ replica, settings }) => {
      aside.textContent = `as ${replica} has them; secrets are not told`;
      fill(body, settings.map(row));
    })
    .catch((error) => {
      fill(trouble, notice(error.message));
      refused(error);
    });
  return { stop() {} };
}

function row(setting) {
  const value = Array.isArray(setting.value) ? setting.value.join(", ") : String(setting.value ?? "not set");
  return el(
    "tr",
    {},
    el("td", { className: "full" }, el("code", {}, setting.environment)),
    el("td", { className: setting.default ? "full tone-soft" : "full" }, value || "none"),
    el("td", { className: "full tone-soft" }, setting.description),
  );
}
