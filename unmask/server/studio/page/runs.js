// Runs: the list, one run, or two runs compared.

import { get, errorBox } from "./api.js";
import { el, percent } from "./dom.js";
import { address, both, number, progress, single, state } from "./run.js";
import { t } from "./texts.js";

const EVERY = 2000; // milliseconds between two polls

/** rest: "" for the list, "NAME" for a run, "NAME|NAME" for two of them (in the address, after #runs/). */
export function show(node, _, rest) {
  let ended = false,
    timer;
  const names = rest ? rest.split("|").slice(0, 2).map(decoded) : [];
  const list = el("div", { class: "found" }),
    chosen = el("div", { class: "chosen" });
  node.append(...(names.length ? [el("p", {}, el("a", { href: "#runs" }, `← ${t("runs.all")}`)), chosen] : [list]));

  async function again(work) {
    if (ended) return;
    const goes = document.hidden || (await work());
    if (!ended && goes) timer = setTimeout(() => again(work), EVERY);
  }

  if (!names.length) again(() => listed(list));
  else if (names.length === 1) single(chosen, names[0]).then((look) => look && again(look));
  else both(chosen, names).then((look) => look && again(look));
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // typed by hand, with an invalid %
  }
}

async function listed(node) {
  let found;
  try {
    found = await get("runs");
  } catch (problem) {
    node.replaceChildren(errorBox(problem));
    return problem.gone;
  }
  const same = JSON.stringify(found) + Math.floor(Date.now() / 60000);
  if (same === node.shown) return true; // unchanged: keep focus and hover
  node.shown = same;
  const picked = new Set([...node.querySelectorAll("input:checked")].map((box) => box.value));
  const focus = document.activeElement?.dataset?.key;
  if (!found.runs.length) {
    node.replaceChildren(
      el(
        "div",
        { class: "trouble" },
        el("p", {}, t("runs.none", { folder: found.folder })),
        el("p", {}, el("code", {}, "unmask pretrain CORPUS --minutes 5")),
      ),
    );
    return true;
  }
  const compare = el(
    "button",
    {
      type: "button",
      class: "main",
      id: "compare",
      disabled: true,
      on: { click: () => (location.hash = address(...picked)) },
    },
    t("runs.compare"),
  );
  const note = el("span", { class: "faint small" });
  const count = () => {
    compare.disabled = picked.size !== 2;
    note.textContent = picked.size === 2 ? "" : t("runs.pick");
  };
  const rows = found.runs.map((run) =>
    el(
      "tr",
      {},
      el(
        "td",
        {},
        el("input", {
          type: "checkbox",
          value: run.name,
          checked: picked.has(run.name),
          "data-key": `box ${run.name}`,
          "aria-label": t("runs.choose", { name: run.name }),
          on: { change: (event) => (picked[event.target.checked ? "add" : "delete"](run.name), count()) },
        }),
      ),
      el(
        "td",
        { class: "name" },
        el("a", { href: address(run.name), "data-key": run.name }, run.name),
        el("small", {}, run.problem ?? [run.what, run.start].filter(Boolean).join(" · ")),
      ),
      el("td", {}, state(run)),
      el("td", {}, progress(run)),
      el("td", { class: "figure" }, number(run.train?.loss)),
      el("td", { class: "figure" }, ...best(run)),
      el("td", { class: "faint" }, when(run.changed)),
    ),
  );
  const heads = [
    "",
    t("runs.run"),
    t("runs.state"),
    t("runs.steps"),
    t("runs.loss"),
    t("runs.heldout"),
    t("runs.changed"),
  ];
  node.replaceChildren(
    el(
      "div",
      { class: "wide" },
      el(
        "table",
        { class: "runs" },
        el(
          "thead",
          {},
          el("tr", {}, ...heads.map((head, n) => el("th", { class: n === 4 || n === 5 ? "figure" : null }, head))),
        ),
        el("tbody", {}, ...rows),
      ),
    ),
    el("div", { class: "options" }, compare, note),
  );
  count();
  if (focus) [...node.querySelectorAll("[data-key]")].find((one) => one.dataset.key === focus)?.focus();
  return true;
}

const FRACTION = /accuracy|f1|ndcg|recall|mrr|map|exact|rouge|pearson|spearman|auc|mcc/;

/** The score of a finished run on its test or dev set; before that, the last validation score, or the validation loss. */
function best(run) {
  if (run.score) return scored(run.score.metric, run.score.value, `${run.score.split} `);
  const found = Object.entries(run.eval ?? {}).find(([key, value]) => FRACTION.test(key) && value >= -1 && value <= 1);
  return found ? scored(...found) : [number(run.eval?.loss)];
}

function scored(metric, value, on = "") {
  const isFraction = FRACTION.test(metric) && value >= -1 && value <= 1;
  return [isFraction ? percent(value) : number(value), el("small", {}, on + metric.replaceAll("_", " "))];
}

function when(seconds) {
  const ago = Math.max(0, Date.now() / 1000 - seconds);
  if (ago < 90) return t("runs.now");
  if (ago < 5400) return t("runs.minutes", { n: Math.round(ago / 60) });
  return ago < 129600
    ? t("runs.hours", { n: Math.round(ago / 3600) })
    : new Date(1000 * seconds).toISOString().slice(0, 10);
}
