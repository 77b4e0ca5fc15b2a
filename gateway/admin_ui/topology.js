// What runs: figures, the graph, its traffic as a table, and what became of engines lately.

import { call } from "./api.js";
import { activity } from "./activity.js";
import { badge, el, fill, notice } from "./dom.js";
import { askForEngine } from "./add.js";
import { count, rate, seconds } from "./format.js";
import { graph } from "./graph.js";
import { poll } from "./poll.js";

const EVERY = 1500;
const KINDS = { prefill: "prompts", decode: "whole requests", kv: "KV", conditioning: "conditioning", codes: "codec frames" };

export function topologyView(main, { mayChange, refused }) {
  const trouble = el("div");
  const away = el("div");
  const figures = el("dl", { className: "figures" });
  const aside = el("p", { className: "aside" });
  const drawn = graph({ mayChange, changed: () => polling.soon(), failed });
  const traffic = el("tbody");
  const lately = activity();
  const addButton = el(
    "button",
    { type: "button", onclick: () => askForEngine({ added: () => polling.soon() }) },
    "Add engine",
  );
  fill(
    main,
    el("div", { className: "head" }, el("h1", {}, "Topology"), aside, mayChange && addButton),
    trouble,
    away,
    figures,
    el("section", { "aria-label": "Stages and engines" }, drawn.node),
    el(
      "section",
      { className: "two first" },
      el("div", { className: "panel" }, el("h2", {}, "Traffic"), table(traffic)),
      el("div", { className: "panel" }, el("h2", {}, "Lately"), lately.node),
    ),
  );

  async function look() {
    try {
      show(await call("topology"));
      fill(trouble);
    } catch (error) {
      failed(error);
    }
  }

  function failed(error) {
    fill(trouble, notice(error.message));
    refused(error);
  }

  function show(topology) {
    const { name, lease_seconds: lease } = topology.connector;
    aside.textContent = `${name}, KV waits ${seconds(lease)} at most · seen by ${topology.replica}`;
    fill(away, topology.sources.filter(({ fault }) => fault !== null).map(({ fault }) => notice(fault)));
    fill(figures, summary(topology));
    drawn.show(topology);
    fill(traffic, rows(topology));
  }

  const polling = poll(look, EVERY);
  return {
    stop() {
      polling.stop();
      drawn.stop();
    },
    told(name, data) {
      lately.told(name, data);
      if (name !== "request") polling.soon();
    },
  };
}

function summary({ edges, engines, routable }) {
  const entry = edges.filter((edge) => edge.from === "gateway");
  const sum = (field) => entry.reduce((total, edge) => total + edge[field], 0);
  const up = engines.filter((engine) => engine.up).length;
  const closed = Object.keys(routable).filter((leg) => !routable[leg]);
  return [
    figure("Requests", rate(sum("per_second"))),
    figure("Running", sum("running")),
    figure("Failed, last minute", sum("failed"), sum("failed") > 0 && "bad"),
    figure("Retried, last minute", sum("retried"), sum("retried") > 0 && "warn"),
    figure("Engines up", `${up} of ${engines.length}`, up < engines.length && "bad"),
    closed.length > 0 && figure("Cannot be served", `no ${closed.join(", no ")}`, "bad"),
  ];
}

function figure(name, value, tone) {
  return el("div", {}, el("dt", {}, name), el("dd", { "data-tone": tone || null }, String(value)));
}

function table(body) {
  const names = ["From", "To", "Carries"].map((name) => el("th", { scope: "col" }, name));
  const numbers = ["Rate", "Running", "Failed", "Retried", "Takes"];
  const head = [...names, ...numbers.map((name) => el("th", { scope: "col", className: "number" }, name))];
  return el("div", { className: "scroll" }, el("table", { className: "stacked" }, el("thead", {}, el("tr", {}, head)), body));
}

function rows({ edges, edges_fault: fault, window_seconds: window }) {
  if (edges.length === 0) {
    const said = fault ?? `Nothing in the last ${count(window, "second")}.`;
    return el("tr", {}, el("td", { colSpan: 8, className: "empty" }, said));
  }
  return edges.map((edge) =>
    el(
      "tr",
      {},
      el("td", { className: "mono" }, edge.from),
      el("td", { className: "mono" }, edge.to),
      el("td", {}, KINDS[edge.kind] ?? edge.kind),
      number("rate", rate(edge.per_second)),
      number("running", edge.running),
      number("failed", edge.failed > 0 ? badge(String(edge.failed), "bad") : 0),
      number("retried", edge.retried),
      number("takes", seconds(edge.mean_seconds)),
    ),
  );
}

function number(name, value) {
  return el("td", { className: "number", "data-name": name }, value instanceof Node ? value : String(value));
}
