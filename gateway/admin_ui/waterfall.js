// Spans of time as bars, one below the other.

import { el, mark } from "./dom.js";
import { seconds } from "./format.js";

const NAMES = { queue: "Queue", prefill: "Prefill", handoff: "Handoff", decode: "Decode", talker: "Talker", code2wav: "Code2Wav" };

export function waterfall(request) {
  const { spans } = request;
  if (spans.length === 0) return el("p", { className: "empty" }, "Its events are no longer kept.");
  const begin = request.created_at;
  const end = Math.max(...spans.map((span) => span.end ?? request.now));
  const whole = Math.max(end - begin, 0.001);
  const share = (at) => `${(100 * (at - begin)) / whole}%`;
  const first = request.timings.first_byte;
  let attempt = 1;

  function row(span) {
    const until = span.end ?? request.now;
    const bar = el("span", { className: "bar", "data-span": span.name });
    mark(bar, "data-running", span.end === null);
    bar.style.left = share(span.start);
    bar.style.width = `${(100 * (until - span.start)) / whole}%`;
    const track = el("span", { className: "track", "aria-hidden": "true" }, bar);
    if (span.name === "decode" && first !== undefined && first >= begin) {
      const line = el("span", { className: "mark", title: "first byte to the client" });
      line.style.left = share(first);
      track.append(line);
    }
    const took = seconds(until - span.start) + (span.end === null ? " …" : "");
    const title = `${NAMES[span.name]}, from +${seconds(span.start - begin)}${span.engine ? `, ${span.engine}` : ""}`;
    return el(
      "li",
      { title, "data-name": span.name },
      el("span", {}, NAMES[span.name] ?? span.name),
      track,
      el("span", { className: "number" }, took),
    );
  }

  const rows = [];
  for (const span of spans) {
    if (span.attempt !== attempt || (rows.length === 0 && request.attempt > 1)) {
      attempt = span.attempt;
      rows.push(el("li", { className: "again" }, `Attempt ${attempt} `, el("span", { className: "tone-soft mono" }, engines(spans, attempt))));
    }
    rows.push(row(span));
  }
  return [
    el("ol", { className: "waterfall" }, rows),
    el("p", { className: "axis", "aria-hidden": "true" }, el("span", {}, "0"), el("span", {}, seconds(whole / 2)), el("span", {}, seconds(whole))),
  ];
}

/** The engines of one attempt, in the order in which it came to them. */
function engines(spans, attempt) {
  const named = spans.filter((span) => span.attempt === attempt && span.engine).map((span) => span.engine);
  return [...new Set(named)].join(" → ");
}
