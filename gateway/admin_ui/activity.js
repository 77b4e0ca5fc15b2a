// What became of engines, and which requests failed, since the page was opened.

import { el } from "./dom.js";
import { clock, words } from "./format.js";

const KEPT = 60;
const BAD = new Set(["engine_down", "engine_refused", "breaker_open", "failed", "expired"]);
const OF_REQUESTS = new Set(["failed", "expired", "retried", "overtaken", "speech_failed"]);

export function activity() {
  const list = el("ol", { className: "activity", "aria-live": "polite" });
  const empty = el("p", { className: "empty" }, "Since this page was opened nothing has happened to an engine, and no request has failed.");
  const node = el("div", {}, empty, list);

  function told(name, data) {
    if (name === "gap" || (name === "request" && !OF_REQUESTS.has(data.event))) return;
    empty.hidden = true;
    list.prepend(line(name, data));
    while (list.children.length > KEPT) list.lastElementChild.remove();
  }

  return { node, told };
}

function line(name, data) {
  const time = el("time", {}, clock(data.at));
  const tone = BAD.has(data.event) ? "tone-bad" : "";
  if (name === "request") {
    const link = el("a", { href: `#/requests/${data.request}`, className: "mono" }, data.request.slice(0, 8));
    return el("li", {}, time, el("span", {}, "request ", link, el("span", { className: tone }, ` ${words(data.event)}`)));
  }
  const fault = data.fault ? `: ${data.fault}` : "";
  const what = el("span", { className: tone }, ` ${words(data.event).replace("engine ", "")}${fault}`);
  return el("li", {}, time, el("span", {}, el("span", { className: "mono" }, data.engine), what, seenBy(data)));
}

function seenBy(data) {
  return data.replica ? el("span", { className: "tone-soft" }, ` (${data.replica})`) : null;
}
