// One column of results per model: one model, or two side by side.

import { el } from "./dom.js";

/** {node, columns: [{model, found}]}: results go into `found`. */
export function modelColumns(models) {
  const columns = models.map((model) => ({ model, found: el("div", { class: "found" }) }));
  const sections = columns.map(({ model, found }) => {
    const title = models.length > 1 ? el("h2", { class: "model" }, model.name) : null;
    return el("section", { "aria-label": model.name }, title, found);
  });
  return { node: el("div", { class: `answers ${models.length > 1 ? "two" : ""}` }, ...sections), columns };
}
