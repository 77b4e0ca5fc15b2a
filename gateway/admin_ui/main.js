// Which view is shown, and what all of them share: the key, the theme, the feed.

import { call } from "./api.js";
import { el, fill, mark, notice } from "./dom.js";
import { follow } from "./feed.js";
import { gate } from "./gate.js";
import { key } from "./key.js";
import { requestView } from "./request.js";
import { requestsView } from "./requests.js";
import { settingsView } from "./settings.js";
import { theme } from "./theme.js";
import { topologyView } from "./topology.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const lock = document.getElementById("lock");

const VIEWS = [
  [/^#\/topology$/, topologyView, "Topology"],
  [/^#\/requests(?:\?(.*))?$/, requestsView, "Requests"],
  [/^#\/requests\/([\w-]+)$/, requestView, "Request"],
  [/^#\/settings$/, settingsView, "Settings"],
];

let shown = null; // { stop, told }: the view, until another takes its place
let feed = null; // ends the feed
let access = { may: "nothing" };
let starts = 0; // so that an answer to an earlier key says nothing of a later one

function show() {
  if (access.may === "nothing") return ask();
  const hash = location.hash || "#/topology";
  for (const [pattern, view, name] of VIEWS) {
    const match = pattern.exec(hash);
    if (match === null) continue;
    leave();
    document.title = `${name} · Duet`;
    for (const link of document.querySelectorAll(".top nav a")) {
      mark(link, "aria-current", hash.startsWith(link.getAttribute("href")) ? "page" : null);
    }
    shown = view(main, { mayChange: access.may === "change", rest: match[1] ?? "", refused });
    return undefined;
  }
  location.replace("#/topology");
  return undefined;
}

function leave() {
  shown?.stop();
  shown = null;
  main.replaceChildren();
}

/** What a view does with an error: a key that is no longer good leads back to the gate. */
function refused(error) {
  if (error.status === 401 || error.status === 403) return start();
  return undefined;
}

function ask() {
  leave();
  feed?.abort();
  said("waiting", "no key");
  document.title = "Duet";
  gate(main, access, start);
}

function said(state, text) {
  live.dataset.state = state;
  live.textContent = text;
}

async function start() {
  starts += 1;
  const latest = starts;
  let told;
  try {
    told = await call("ui/access");
  } catch (error) {
    if (latest !== starts) return;
    said("lost", "no connection");
    fill(main, notice(error.message), el("button", { type: "button", onclick: start }, "Try again"));
    return;
  }
  if (latest !== starts) return;
  access = told;
  lock.hidden = key.get() === null;
  if (access.may !== "nothing") listen();
  show();
}

function listen() {
  feed?.abort();
  feed = new AbortController();
  follow({
    signal: feed.signal,
    told: (name, data) => shown?.told?.(name, data),
    state: (state) => said(state, state === "live" ? "live" : "connection lost"),
  });
}

lock.addEventListener("click", () => {
  key.forget();
  start();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = { 1: "#/topology", 2: "#/requests", 3: "#/settings" }[event.key];
  if (target) location.hash = target;
});
window.addEventListener("hashchange", () => {
  show();
  main.focus();
});
theme(document.getElementById("theme"));
start();
