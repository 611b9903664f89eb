// One run: live curves, its first training sequences, its settings. Or two runs compared.

import { get, renderInto, errorBox } from "./api.js";
import { curves } from "./curves.js";
import { bar, el } from "./dom.js";
import { reader } from "./log.js";
import { t } from "./texts.js";

/** URL fragment of one or two runs. */
export const address = (...names) => `#runs/${names.map(encodeURIComponent).join("|")}`;

export const state = (run) => el("span", { class: `state ${run.state}` }, t(`runs.${run.state}`));
export const number = (value) => (typeof value === "number" ? value.toFixed(3) : "");
const written = (value) =>
  value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);

export function progress(run) {
  const { done, total } = run.steps ?? { done: 0, total: null };
  const text = total ? `${done.toLocaleString("en")} / ${total.toLocaleString("en")}` : done.toLocaleString("en");
  return el("span", { class: "progress" }, total ? bar(done / total) : null, el("span", { class: "figure" }, text));
}

/** Show a run; returns a function that polls for news and returns whether to poll again. */
export async function single(node, name) {
  let run;
  try {
    run = await get("run", { name });
  } catch (problem) {
    node.replaceChildren(errorBox(problem));
    return null;
  }
  const head = el("div", {}),
    plots = el("div", { class: "plots" }),
    batch = el("div", { class: "found" });
  const facts = () => {
    const links = run.report
      ? el(
          "a",
          { href: `studio/report?${new URLSearchParams({ name })}`, target: "_blank", rel: "noopener" },
          t("runs.report"),
        )
      : null;
    const warnings = (run.warnings ?? []).map((text) => el("p", { class: "warning" }, text));
    head.replaceChildren(
      el("h2", { class: "run" }, name, " ", state(run)),
      el("p", { class: "faint" }, [run.verb, run.what, run.start].filter(Boolean).join(" · ")),
      el("div", { class: "options" }, progress(run), scores(run), links),
      ...warnings,
    );
  };
  const log = reader(name);
  facts();
  node.replaceChildren(
    head,
    plots,
    run.batch
      ? el(
          "section",
          { class: "panel", id: "batch" },
          el("h2", {}, t("runs.batch")),
          el("p", { class: "lead" }, t("runs.batch.lead")),
          batch,
        )
      : "",
    el("details", {}, el("summary", {}, t("runs.settings")), settings(run.recipe)),
  );
  if (run.batch) renderInto(batch, async () => masked(await get("batch", { name })));
  return async () => {
    const changed = await log.read().catch(() => false);
    if (changed || run.state === "running") {
      run = await get("run", { name }).catch(() => run);
      facts();
    }
    if (changed || !plots.childElementCount) curves(plots, [{ name, events: log.events }]);
    return changed || run.state === "running";
  };
}

/** Curves of two runs, and the settings in which they differ. */
export async function both(node, names) {
  let runs, differing;
  try {
    runs = await Promise.all(names.map((name) => get("run", { name })));
    differing = (await get("compare", { a: names[0], b: names[1] })).settings;
  } catch (problem) {
    node.replaceChildren(errorBox(problem));
    return null;
  }
  const plots = el("div", { class: "plots" }),
    logs = names.map(reader);
  const rows = differing.map(({ key, a, b }) =>
    el("tr", {}, el("th", { scope: "row" }, key), el("td", {}, written(a)), el("td", {}, written(b))),
  );
  const head = el(
    "tr",
    {},
    el("th", {}, ""),
    ...names.map((name, n) => el("th", {}, el("span", { class: `key ${n ? "against" : "toward"}` }), name)),
  );
  node.replaceChildren(
    el(
      "h2",
      { class: "run" },
      ...names.flatMap((name, n) => [
        n ? " / " : "",
        el("a", { href: address(name) }, el("span", { class: `key ${n ? "against" : "toward"}` }), name),
      ]),
    ),
    plots,
    el(
      "section",
      { class: "panel" },
      el("h2", {}, t("runs.differing")),
      rows.length
        ? el(
            "div",
            { class: "wide" },
            el("table", { class: "settings" }, el("thead", {}, head), el("tbody", {}, ...rows)),
          )
        : el("p", { class: "hint" }, t("runs.same")),
    ),
  );
  return async () => {
    const changed = await Promise.all(logs.map((log) => log.read().catch(() => false)));
    if (changed.includes(true) || !plots.childElementCount)
      curves(
        plots,
        names.map((name, n) => ({ name, events: logs[n].events })),
      );
    return changed.includes(true) || runs.some((run) => run.state === "running");
  };
}

function scores(run) {
  const shown = Object.entries(run.eval ?? {})
    .filter(([key]) => !["step", "elapsed"].includes(key))
    .slice(0, 6);
  return el(
    "dl",
    { class: "scores" },
    ...shown.flatMap(([key, value]) => [el("dt", {}, key.replaceAll("_", " ")), el("dd", {}, number(value))]),
  );
}

function settings(recipe) {
  const rows = (values, path) =>
    Object.entries(values).flatMap(([key, value]) =>
      value && typeof value === "object" && !Array.isArray(value)
        ? rows(value, `${path}${key}.`)
        : [el("tr", {}, el("th", { scope: "row" }, path + key), el("td", {}, written(value)))],
    );
  return el("div", { class: "wide" }, el("table", { class: "settings" }, el("tbody", {}, ...rows(recipe ?? {}, ""))));
}

/** Rows of a corrupted batch: tokens that are masked, replaced, or unchanged. */
function masked(found) {
  const legend = el(
    "p",
    { class: "faint small" },
    ...["masked", "random", "kept"].flatMap((name) => [
      el("span", { class: `part ${name}` }, t("runs.sample")),
      ` ${t(`runs.${name}`)}   `,
    ]),
  );
  return [
    ...found.rows.map((row) =>
      el(
        "p",
        { class: "row", lang: "" },
        ...row.parts.flatMap((part) => {
          const space = part.text.startsWith(" ") ? " " : "";
          if (part.state === "text") return [part.text];
          const text = part.text.trim() || "␣",
            shown = part.shown.trim() || "␣";
          return [
            space,
            el(
              "span",
              { class: `part ${part.state}`, title: part.state === "special" ? null : t(`runs.${part.state}`) },
              part.state === "random" ? `${text} → ${shown}` : text,
            ),
          ];
        }),
        row.note ? el("small", { class: "faint" }, ` ${row.note}`) : null,
      ),
    ),
    legend,
  ];
}
