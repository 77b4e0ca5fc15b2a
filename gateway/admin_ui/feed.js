// What happens, as the gateway tells it. EventSource cannot send a key, so the stream is read by hand.

import { open } from "./api.js";

const AGAIN_AFTER = 1000;

/**
 * Follows `/admin/events` until `signal` is aborted, and goes on after a break where it was. `told` gets the event's
 * name and data; `state` is told "live" or "lost".
 */
export async function follow({ told, state, signal }) {
  let last = null;
  while (!signal.aborted) {
    try {
      const headers = last === null ? {} : { "last-event-id": last };
      const reply = await open("events", { headers, signal });
      state("live");
      for await (const event of events(reply.body)) {
        last = event.id ?? last;
        told(event.name, event.data);
      }
    } catch (error) {
      if (error.name === "AbortError") return;
    }
    if (signal.aborted) return;
    state("lost");
    await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER));
  }
}

/** Server-sent events out of a body. */
export async function* events(body) {
  let rest = "";
  for await (const text of chunks(body)) {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parsed(block);
      if (event !== null) yield event;
    }
  }
}

async function* chunks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (fields.data === undefined) return null;
  return { name: fields.event ?? "message", id: fields.id ?? null, data: JSON.parse(fields.data) };
}
