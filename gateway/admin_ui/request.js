// One request: what it is, its life as a waterfall, its events, and its end if somebody wants it.

import { call } from "./api.js";
import { confirmed } from "./confirm.js";
import { badge, el, fill, mark, notice, pairs } from "./dom.js";
import { moment, seconds, toneOf, words } from "./format.js";
import { poll } from "./poll.js";
import { waterfall } from "./waterfall.js";

const EVERY = 1000;
const RUNNING = ["accepted", "prefilling", "prefilled", "decoding"];

export function requestView(main, { rest: id, mayChange, refused }) {
  const trouble = el("div");
  const state = el("span", { className: "badge" });
  const cancel = el("button", { type: "button", className: "danger", hidden: true, onclick: end }, "Cancel request");
  const facts = el("div");
  const fall = el("div");
  const events = el("tbody");
  const rest = el("div");
  fill(
    main,
    el("p", {}, el("a", { href: "#/requests" }, "← Requests")),
    el("div", { className: "head" }, el("h1", { className: "mono" }, id), state, el("span", { className: "aside" }), cancel),
    trouble,
    el("section", { className: "panel", "aria-label": "Timeline" }, el("h2", {}, "Timeline"), fall),
    el(
      "section",
      { className: "two" },
      el("div", { className: "panel" }, el("h2", {}, "About"), facts),
      el("div", { className: "panel" }, el("h2", {}, "Events"), table(events)),
    ),
    el("section", {}, rest),
  );

  async function look() {
    try {
      const request = await call(`requests/${encodeURIComponent(id)}`);
      show(request);
      fill(trouble, request.error && notice(request.error.message ?? request.error.code));
      if (!RUNNING.includes(request.state)) polling.stop();
    } catch (error) {
      fill(trouble, notice(error.message));
      if (error.status === 404) polling.stop();
      refused(error);
    }
  }

  function show(request) {
    state.textContent = request.state;
    mark(state, "data-tone", toneOf(request.state));
    cancel.hidden = !mayChange || !RUNNING.includes(request.state);
    fill(fall, waterfall(request));
    fill(facts, about(request));
    fill(events, request.events.map((event) => row(event, request.created_at)));
    fill(rest, request.handoff && details("Handoff", request.handoff), request.usage && details("Usage", request.usage));
  }

  async function end() {
    const text = "Both its legs are closed at once, and its client gets an error.";
    if (!(await confirmed("Cancel this request?", text, "Cancel it"))) return;
    try {
      await call(`requests/${encodeURIComponent(id)}`, { method: "DELETE" });
      await look();
    } catch (error) {
      fill(trouble, notice(error.message));
    }
  }

  const polling = poll(look, EVERY);
  return {
    stop: () => polling.stop(),
    told(name, data) {
      if (name === "request" && data.request === id) polling.soon();
    },
  };
}

function titled(name) {
  return words(name[0].toUpperCase() + name.slice(1));
}

function about(request) {
  const phases = Object.entries(request.phases).map(([name, took]) => [titled(name), seconds(took)]);
  return [
    pairs(
      [
        ["Admitted", moment(request.created_at)],
        ["Endpoint", `${request.endpoint}${request.stream ? ", streamed" : ""}`],
        ["Model", request.model],
        ["Client's id", request.client_request_id],
        ["Gateway", request.replica],
        ["Prefill", request.prefill ?? `none: ${request.unsplit ?? "unsplit"}`],
        ["Decode", request.decode],
        ["Talker", request.talker],
        ["Code2Wav", request.code2wav],
        ["Attempts", String(request.attempt)],
        ...phases,
      ].filter(([, value]) => value),
      "pairs wide",
    ),
  ];
}

function table(body) {
  const head = ["After", "Event", "State"].map((name) => el("th", { scope: "col" }, name));
  return el("div", { className: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head)), body));
}

function row(event, since) {
  return el(
    "tr",
    {},
    el("td", { className: "mono" }, `+${seconds(Math.max(0, event.at - since))}`),
    el("td", {}, words(event.event)),
    el("td", {}, badge(event.state, toneOf(event.state))),
  );
}

function details(name, value) {
  return el("details", { className: "panel" }, el("summary", {}, name), el("pre", {}, JSON.stringify(value, null, 2)));
}
