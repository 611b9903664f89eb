// A run's log, read incrementally.

import { get } from "./api.js";

const MAX_EVENTS = 6000; // kept of a log

/** {events, read()}: `read` returns whether there are new events. For a very long log, every second training event is dropped. */
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
      if (log.events.length > MAX_EVENTS) log.events = log.events.filter((event, n) => event.event !== "train" || n % 2);
    } while (found.more);
    return changed;
  };
  return log;
}
