// Calls of the admin API, at the address that this page came from.

import { key } from "./key.js";

const ROOT = new URL("..", import.meta.url);

/** What the server said instead of an answer; `status` 0 where it said nothing. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** One reply with its headers in; raises Refused for one that is none. */
export async function open(path, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = { ...headers };
  if (key.get()) sent.authorization = `Bearer ${key.get()}`;
  if (body !== undefined) sent["content-type"] = "application/json";
  let reply;
  try {
    reply = await fetch(new URL(path, ROOT), {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "omit",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the gateway does not answer");
  }
  if (!reply.ok) throw new Refused(reply.status, await reason(reply));
  return reply;
}

export async function call(path, options) {
  return (await open(path, options)).json();
}

/** A path below `requests/` or `engines/`: ids of engines have colons, and may have slashes, which are part of it. */
export function engine(id) {
  return `engines/${id.split("/").map(encodeURIComponent).join("/")}`;
}

async function reason(reply) {
  try {
    return (await reply.json()).error.message;
  } catch {
    return `the gateway answered with ${reply.status}`;
  }
}
