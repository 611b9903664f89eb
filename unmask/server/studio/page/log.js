// A run's log, read on from where it was.

import { get } from "./api.js";

const MOST = 6000; // lines kept of a log

/** {events, read()}: `read` says whether something was new. Of a very long log every second step is dropped. */
export function reader(name) {
  const log = { events: [], offset: 0, file: "" };
  log.read = async () => {
    let changed = false,
      found;
    do {
      found = await get("log", { name, offset: log.offset, file: log.file });
      if (found.fresh) log.events = [];
      changed ||= found.events.length > 0 || (found.fresh && log.offset > 0);
      Object.assign(log, { offset: found.offset, file: found.file });
      log.events.push(...found.events);
      if (log.events.length > MOST) log.events = log.events.filter((event, n) => event.event !== "train" || n % 2);
    } while (found.more);
    return changed;
  };
  return log;
}
