// State of the page: choices that are kept in localStorage, and the selected models.

const PREFIX = "unmask.";

export function stored(name, otherwise) {
  try {
    return localStorage.getItem(PREFIX + name) ?? otherwise;
  } catch {
    return otherwise; // storage may be disabled
  }
}

export function store(name, value) {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch {
    // not kept for the next visit
  }
}

/** Names of the selected models; the second may be "". */
export const chosen = { model: "", second: "" };
