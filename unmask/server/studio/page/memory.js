// What the page remembers: choices for the next visit, and what was typed as long as it is open.

const PREFIX = "unmask.";

export function kept(name, otherwise) {
  try {
    return localStorage.getItem(PREFIX + name) ?? otherwise;
  } catch {
    return otherwise; // storage may be forbidden
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch {
    // then it is asked again next time
  }
}

/** Names of the models that are asked, the second one possibly "". */
export const chosen = { model: "", second: "" };
