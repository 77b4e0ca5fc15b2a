// The request table: newest first, filtered, a page at a time; the first page keeps itself fresh.

import { call } from "./api.js";
import { badge, el, fill, notice } from "./dom.js";
import { clock, seconds, toneOf } from "./format.js";
import { poll } from "./poll.js";

const EVERY = 3000;
const PAGE = 25;
const STATES = {
  "": "any state",
  running: "running",
  finished: "finished",
  failed: "failed",
  cancelled: "cancelled",
  expired: "expired",
};
const RUNNING = ["accepted", "prefilling", "prefilled", "decoding"];

export function requestsView(main, { rest, refused }) {
  const asked = new URLSearchParams(rest);
  const trouble = el("div");
  const body = el("tbody");
  const state = select("State", STATES, asked.get("state"));
  const engine = select("Engine", { "": "any engine" }, null);
  const model = select("Model", { "": "any model" }, null);
  const id = el("input", { type: "search", placeholder: "paste an id", spellcheck: false });
  const newest = el("button", { type: "button", onclick: () => turn([]) }, "Newest");
  const older = el("button", { type: "button", onclick: () => turn([...pages, next]) }, "Older");
  const find = el("form", { onsubmit: found }, el("label", {}, "Request id", id));
  let pages = []; // cursors of the pages before this one
  let next = null;

  for (const one of [state, engine, model]) one.input.addEventListener("change", () => turn([]));
  fill(
    main,
    el("div", { className: "head" }, el("h1", {}, "Requests"), el("p", { className: "aside" }, "of all replicas, newest first")),
    trouble,
    el("div", { className: "filters", role: "search" }, state.node, engine.node, model.node, find),
    el("div", { className: "panel" }, table(body), el("div", { className: "pager" }, newest, older)),
  );

  function found(event) {
    event.preventDefault();
    const bare = id.value.trim().replace(/^(chatcmpl|cmpl)-/, "").split("-")[0];
    if (bare) location.hash = `#/requests/${encodeURIComponent(bare)}`;
  }

  function turn(to) {
    pages = to;
    polling.soon();
  }

  async function look() {
    try {
      const reply = await call(`requests?${query()}`);
      next = reply.next;
      fill(body, reply.requests.length > 0 ? reply.requests.map(row) : nothing());
      newest.disabled = pages.length === 0;
      older.disabled = next === null;
      fill(trouble);
    } catch (error) {
      fill(trouble, notice(error.message));
      refused(error);
    }
  }

  function query() {
    const query = new URLSearchParams({ limit: String(PAGE) });
    const states = state.input.value === "running" ? RUNNING : [state.input.value].filter(Boolean);
    for (const one of states) query.append("state", one);
    if (engine.input.value) query.set("engine", engine.input.value);
    if (model.input.value) query.set("model", model.input.value);
    if (pages.length > 0) query.set("before", pages.at(-1));
    return query;
  }

  async function choices() {
    const topology = await call("topology");
    options(engine.input, topology.engines.map((one) => one.id), asked.get("engine"));
    options(model.input, Object.keys(topology.models), null);
  }

  options(engine.input, [], asked.get("engine"));
  choices().catch(refused);
  const polling = poll(look, EVERY);
  return { stop: () => polling.stop() };
}

function select(name, choices, chosen) {
  const input = el("select", {}, Object.entries(choices).map(([value, text]) => el("option", { value }, text)));
  if (chosen !== null && chosen in choices) input.value = chosen;
  return { input, node: el("label", {}, name, input) };
}

/** Adds what is not there yet; a value that was asked for stays chosen also where nothing has it any more. */
function options(input, values, chosen) {
  const there = new Set([...input.options].map((option) => option.value));
  for (const value of chosen === null ? values : [...values, chosen]) {
    if (!there.has(value)) input.append(el("option", { value }, value));
    there.add(value);
  }
  if (chosen !== null && !input.dataset.touched) input.value = chosen;
  input.dataset.touched = "yes";
}

function table(body) {
  const heads = ["Request", "State", "Admitted", "Took", "Model", "Engines"];
  const head = heads.map((name) => el("th", { scope: "col", className: name === "Took" ? "number" : "" }, name));
  return el("div", { className: "scroll" }, el("table", { className: "stacked" }, el("thead", {}, el("tr", {}, head)), body));
}

function nothing() {
  return el("tr", {}, el("td", { colSpan: 6, className: "empty" }, "No request that fits is known."));
}

function row(request) {
  const running = RUNNING.includes(request.state);
  const took = (running ? Date.now() / 1000 : request.updated_at) - request.created_at;
  const way = [request.prefill, request.decode, request.talker, request.code2wav].filter(Boolean).join(" → ");
  const notes = [
    request.unsplit && `unsplit: ${request.unsplit}`,
    request.attempt > 1 && `attempt ${request.attempt}`,
    request.speech && request.speech !== "off" && `speech ${request.speech}`,
  ].filter(Boolean);
  return el(
    "tr",
    { "data-request": request.id },
    el(
      "td",
      { className: "full" },
      el("a", { href: `#/requests/${request.id}`, className: "mono" }, request.id),
      request.client_request_id && el("span", { className: "sub" }, request.client_request_id),
      request.error && el("span", { className: "sub tone-bad" }, request.error.message ?? request.error.code),
    ),
    el("td", {}, badge(request.state, toneOf(request.state))),
    el("td", { "data-name": "at" }, clock(request.created_at)),
    el("td", { className: "number", "data-name": "took" }, seconds(Math.max(0, took))),
    el("td", { "data-name": "model" }, request.model),
    el("td", { className: "full" }, el("span", { className: "mono" }, way), notes.length > 0 && el("span", { className: "sub" }, notes.join(" · "))),
  );
}
