// The graph: a column a stage, a card an engine, and curves for what goes from one to the next.

import { el, fill, mark, svg } from "./dom.js";
import { engineCard } from "./engine.js";
import { rate } from "./format.js";

const GATEWAY = "gateway";
const MOST_IDLE = 24; // curves without traffic, beyond which they only hide the others

export function graph(actions) {
  const lines = svg("svg", { "aria-hidden": "true" });
  const columns = el("div", { className: "columns" });
  const node = el("div", { className: "graph" }, columns);
  node.prepend(lines);
  const gateway = gatewayCard();
  const cards = new Map([[GATEWAY, gateway]]);
  const stages = new Map();
  let last = null;

  const watcher = new ResizeObserver(() => last && draw(last));
  watcher.observe(columns);

  function show(topology) {
    last = topology;
    gateway.show(topology);
    for (const engine of topology.engines) {
      if (!cards.has(engine.id)) cards.set(engine.id, engineCard(engine.id, actions));
      cards.get(engine.id).show(engine);
    }
    const there = new Set([GATEWAY, ...topology.engines.map((engine) => engine.id)]);
    for (const id of [...cards.keys()].filter((id) => !there.has(id))) cards.delete(id);
    place(topology.stages);
    draw(topology);
  }

  /** Cards stay the elements they are, so that nothing that is open closes and no focus is lost. */
  function place(listed) {
    const wanted = [gateway.node];
    for (const stage of listed) {
      if (!stages.has(stage.id)) stages.set(stage.id, stageColumn(stage.name));
      const column = stages.get(stage.id);
      column.show(stage, stage.engines.map((id) => cards.get(id).node));
      wanted.push(column.node);
    }
    settle(columns, wanted);
  }

  function draw({ stages: listed, edges }) {
    const box = node.getBoundingClientRect();
    const at = (id) => cards.get(id)?.node.getBoundingClientRect();
    const carried = new Map(edges.map((edge) => [`${edge.from} ${edge.to}`, edge]));
    const idle = idlePairs(listed).filter(([from, to]) => !carried.has(`${from} ${to}`));
    const drawn = [];
    for (const [from, to] of idle.length > MOST_IDLE ? [] : idle) drawn.push(curve(box, at(from), at(to)));
    const texts = [];
    for (const edge of edges) {
      const [from, to] = [at(edge.from), at(edge.to)];
      drawn.push(curve(box, from, to, edge));
      texts.push(...labels(box, from, to, edge));
    }
    lines.replaceChildren(...[...drawn, ...texts].filter(Boolean));
  }

  return { node, show, stop: () => watcher.disconnect() };
}

/** Puts these children there, moving none that is in its place. */
function settle(parent, wanted) {
  wanted.forEach((child, i) => {
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
  });
  while (parent.children.length > wanted.length) parent.lastElementChild.remove();
}

function idlePairs(stages) {
  const layers = [[GATEWAY], ...stages.filter((stage) => stage.id !== "both").map((stage) => stage.engines)];
  return layers.slice(1).flatMap((targets, i) => layers[i].flatMap((from) => targets.map((to) => [from, to])));
}

function stageColumn(name) {
  const note = el("span");
  const cards = el("div", { className: "cards" });
  const node = el("section", { className: "stage" }, el("header", {}, el("h3", {}, name), note), cards);
  return {
    node,
    show(stage, engines) {
      note.textContent = `${stage.routable} of ${engines.length} open`;
      settle(cards, engines);
    },
  };
}

function gatewayCard() {
  const models = el("p", { className: "tone-soft" });
  const node = el("div", { className: "card gateway" }, el("h4", {}, "Gateway"), models);
  return {
    node,
    show(topology) {
      const names = Object.keys(topology.models);
      fill(models, names.length > 0 ? names.join(", ") : "no model yet");
    },
  };
}

function ends(box, from, to) {
  return {
    x1: from.right - box.left,
    y1: from.top + from.height / 2 - box.top,
    x2: to.left - box.left,
    y2: to.top + to.height / 2 - box.top,
  };
}

function curve(box, from, to, edge = null) {
  if (!from || !to) return null;
  const { x1, y1, x2, y2 } = ends(box, from, to);
  const bend = Math.max(30, (x2 - x1) / 2);
  const path = svg("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` });
  if (edge !== null) {
    mark(path, "data-tone", edge.failed > 0 ? "bad" : "busy");
    path.style.strokeWidth = String(Math.min(7, 1.5 + Math.log2(1 + edge.per_second)));
  }
  return path;
}

/** Nearer to the target, where the curves of one source have parted. */
function labels(box, from, to, edge) {
  if (!from || !to) return [];
  const { x1, y1, x2, y2 } = ends(box, from, to);
  const x = x1 + (x2 - x1) * 0.55;
  const y = y1 + (y2 - y1) * 0.6;
  const text = svg("text", { x, y: y - 6 }, rate(edge.per_second));
  return edge.failed > 0 ? [text, svg("text", { x, y: y + 15, "data-tone": "bad" }, `${edge.failed} failed`)] : [text];
}
