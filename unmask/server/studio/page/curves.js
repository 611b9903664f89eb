// Curves of one or two runs: loss, validation scores, learning rate, speed.

import { el } from "./dom.js";
import { color, draw, plain } from "./plot.js";
import { t } from "./texts.js";

const COLORS = ["--accent", "--second"];
const FEW = 40; // steps
const MAX_SCORES = 3; // plotted in addition to the loss
const OTHER = /^(step|elapsed|loss|perplexity|mlm|nsp|sop|rtd|lm|event)$/;

/** runs: [{name, events}] */
export function curves(node, runs) {
  const evals = runs.map((run) => run.events.filter((event) => event.event === "eval"));
  const names = scores(evals).slice(0, MAX_SCORES);
  const charts = [
    { key: "loss", title: t("curves.loss"), both: true },
    ...names.map((key) => ({ key, title: `${t("curves.heldout")} ${key.replaceAll("_", " ")}`, held: true })),
    { key: "lr_factor", title: t("curves.lr") },
    { key: "grad_norm", title: t("curves.grad") },
    { key: "tokens_per_second", title: t("curves.speed") },
  ];
  for (const { key, title, both, held } of charts) {
    const traces = runs.flatMap((run, n) => makeTraces(run, color(COLORS[n]), key, both, held));
    if (!traces.length) continue;
    const plot =
      node.querySelector(`[data-key="${CSS.escape(key)}"]`) ??
      node.appendChild(
        el("div", { class: `plot ${both ? "large" : "low"}`, "data-key": key, role: "img", "aria-label": title }),
      );
    draw(plot, traces, {
      title: plain(title),
      height: both ? 320 : 220,
      yaxis: held ? { range: around(traces.flatMap((trace) => trace.y)) } : {},
      xaxis: { title: { text: t("curves.step"), font: { size: 12, color: color("--faint") } }, rangemode: "tozero" },
      uirevision: key,
    });
  }
  if (!node.childElementCount) node.append(el("p", { class: "hint" }, t("curves.none")));
  else node.querySelector(":scope > .hint")?.remove();
}

/** Names of scores between -1 and 1; those that all runs have first. */
function scores(evals) {
  const has = (events, key) => events.some((event) => typeof event[key] === "number");
  const isFraction = (value) => value == null || (typeof value === "number" && Math.abs(value) <= 1);
  const keys = [...new Set(evals.flat().flatMap((event) => Object.keys(event)))];
  const runs = (key) => evals.filter((events) => has(events, key)).length;
  return keys
    .filter((key) => !OTHER.test(key) && runs(key) && evals.flat().every((event) => isFraction(event[key])))
    .sort((a, b) => runs(b) - runs(a));
}

/** Axis range: the values with a margin, at most 1.02. */
function around(values) {
  const low = Math.min(...values),
    high = Math.max(...values),
    room = Math.max(0.02, 0.15 * (high - low));
  return [low - room, Math.min(1.02, high + room)];
}

function makeTraces(run, ink, key, both, held) {
  const points = (kind) => run.events.filter((event) => event.event === kind && typeof event[key] === "number");
  const line = (events, more) => ({
    type: "scatter",
    x: events.map((event) => event.step),
    y: events.map((event) => event[key]),
    name: plain(run.name),
    hovertemplate: `%{y:.4~g}<extra>${plain(run.name)} · %{x}</extra>`,
    ...more,
  });
  const train = held ? [] : points("train"),
    evals = both || held ? points("eval") : [];
  const few = train.length <= FEW; // no smoothing needed
  const smoothed = smooth(train.map((event) => event[key]));
  return [
    train.length
      ? line(train, {
          mode: "lines",
          line: { color: ink, width: few ? 2 : 1 },
          opacity: few ? 1 : 0.25,
          ...(few ? {} : { hoverinfo: "skip", hovertemplate: undefined }),
        })
      : null,
    !few ? { ...line(train, { mode: "lines", line: { color: ink, width: 2 } }), y: smoothed } : null,
    evals.length
      ? line(evals, {
          mode: "lines+markers",
          line: { color: ink, width: 1.5, dash: both ? "dot" : "solid" },
          marker: { color: ink, size: 7 },
          hovertemplate: `${plain(t("curves.heldout"))} %{y:.4~g}<extra>${plain(run.name)} · %{x}</extra>`,
        })
      : null,
  ].filter(Boolean);
}

/** Moving average over 4% of the run. */
function smooth(values) {
  const reach = Math.max(1, Math.floor(values.length / 50)),
    sums = [0];
  for (const value of values) sums.push(sums.at(-1) + value);
  return values.map((_, n) => {
    const wide = Math.min(reach, n),
      end = Math.min(n + wide + 1, values.length);
    return (sums[end] - sums[n - wide]) / (end - n + wide);
  });
}
