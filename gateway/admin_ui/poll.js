// Looking again and again, one look at a time, and not while nobody sees it.

/** Calls `look` now, every `every` ms after it was done, and at once after `soon()`, until `stop()`. */
export function poll(look, every) {
  let timer = null;
  let running = false;
  let again = false;
  let over = false;

  async function run() {
    if (over) return;
    if (running) {
      again = true;
      return;
    }
    running = true;
    clearTimeout(timer);
    try {
      if (!document.hidden) await look();
    } finally {
      running = false;
      if (!over) timer = setTimeout(run, again ? 0 : every);
      again = false;
    }
  }

  document.addEventListener("visibilitychange", run);
  run();
  return {
    soon: run,
    stop() {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", run);
    },
  };
}
