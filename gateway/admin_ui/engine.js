// One engine as a card, with what may be done to it.

import { call, engine as pathOf } from "./api.js";
import { confirmed } from "./confirm.js";
import { el, fill, mark, pairs } from "./dom.js";
import { count, percent, seconds, words } from "./format.js";

const FULL = 0.9;

/** `changed` is called after a change, `failed` with an error. */
export function engineCard(id, { mayChange, changed, failed }) {
  const state = el("span", { className: "badge" });
  const fault = el("p", { className: "fault" });
  const load = el("dd");
  const waiting = el("dd");
  const usage = el("dd");
  const filled = el("span");
  const meter = el("span", { className: "meter", "aria-hidden": "true" }, filled);
  const more = el("div");
  const drain = el("button", { type: "button", className: "small quiet", onclick: () => act(toggle) }, "Drain");
  const remove = el("button", { type: "button", className: "small quiet danger", onclick: () => act(leave) }, "Remove");
  const requests = el("a", { className: "tone-soft", href: `#/requests?engine=${encodeURIComponent(id)}` }, "Requests");
  const figures = el("dl", { className: "pairs" });
  figures.append(el("dt", {}, "In flight"), load, el("dt", {}, "Queued"), waiting, el("dt", {}, "KV used"), usage);
  const node = el(
    "article",
    { className: "card", "aria-label": `Engine ${id}`, "data-engine": id },
    el("header", {}, el("h4", {}, id), state),
    fault,
    el("div", {}, figures, meter),
    el("details", {}, el("summary", {}, "About"), more),
    el("footer", {}, mayChange && drain, mayChange && remove, requests),
  );
  let shown = null;

  async function act(change) {
    if (shown === null) return;
    try {
      if (await change()) changed();
    } catch (error) {
      failed(error);
    }
  }

  async function toggle() {
    const on = !shown.draining;
    const text = on
      ? `It gets no new request, on any replica. ${count(shown.load, "request")} in flight there will end by themselves.`
      : "It gets requests again, on every replica.";
    if (!(await confirmed(`${on ? "Drain" : "Undrain"} ${id}?`, text, on ? "Drain" : "Undrain"))) return false;
    await call(`${pathOf(id)}/${on ? "drain" : "undrain"}`, { method: "POST" });
    return true;
  }

  async function leave() {
    const text = "It leaves the fleet once what runs on it has ended, and stays away until it is added again.";
    if (!(await confirmed(`Remove ${id}?`, text, "Remove"))) return false;
    await call(pathOf(id), { method: "DELETE" });
    return true;
  }

  function show(engine) {
    shown = engine;
    const [word, tone] = stateOf(engine);
    state.textContent = word;
    mark(state, "data-tone", tone);
    mark(node, "data-tone", tone === "good" ? null : tone);
    fault.hidden = engine.fault === null;
    fault.textContent = engine.fault ?? "";
    load.textContent = String(engine.load);
    waiting.textContent = engine.waiting === null ? "–" : String(engine.waiting);
    usage.textContent = percent(engine.kv.usage);
    filled.style.width = `${(engine.kv.usage ?? 0) * 100}%`;
    mark(meter, "data-tone", engine.kv.usage > FULL && "bad");
    drain.textContent = engine.draining ? "Undrain" : "Drain";
    drain.disabled = remove.disabled = engine.leaving;
    fill(more, about(engine));
  }

  return { node, show };
}

function stateOf(engine) {
  if (engine.leaving) return ["leaving", "warn"];
  if (engine.refused) return ["refused", "bad"];
  if (!engine.up) return ["down", "bad"];
  if (engine.draining) return ["draining", "warn"];
  if (engine.breaker !== "closed") return [`breaker ${words(engine.breaker)}`, "warn"];
  return ["up", "good"];
}

function about(engine) {
  const told = engine.identity ?? {};
  const rows = [
    ["Address", engine.url],
    ["Named by", engine.source],
    ["Serves", Object.keys(engine.models).join(", ") || "nothing yet"],
    ["KV lease", engine.kv.lease_seconds === null ? null : seconds(engine.kv.lease_seconds)],
    ["vLLM", told.vllm_version],
    ["Runner", told.runner && `${told.runner} ${told.runner_version ?? ""}`],
    ["Ranks, block", told.block_size && `${told.tensor_parallel_size} × ${told.block_size} tokens`],
    ["Engine id", told.engine_id],
  ];
  return pairs(rows.filter(([, value]) => value));
}
