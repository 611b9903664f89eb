// Predictions of a task: bars, marked text, a ranking.

import { bar, el, marked, percent } from "./dom.js";
import { t } from "./texts.js";

const HUES = 6; // colors of labels, see views.css

/** form: the server's description; record: the input, by field; found: the prediction. */
export function answer({ view, fields }, record, found) {
  const several = record[fields.find((one) => one.holds === "texts")?.name];
  const texts = fields.filter((one) => one.holds === "text").map((one) => record[one.name]);
  if (view === "labels") return labels(found);
  if (view === "tags") return found.entities ? entities(texts[0], found) : tags(texts[0], found);
  if (view === "span") return span(texts.at(-1), found);
  if (view === "choices") return bars(several.map((text, n) => [text, found.scores[n], n === found.choice]));
  if (view === "ranking") return ranking(several, found);
  if (view === "text") return written(found);
  if (view === "similarity") return bars([[t("task.cosine"), found.similarity, true]], (value) => value.toFixed(3));
  if (view === "next_sentence")
    return bars([
      [t("task.follows"), found.next_sentence.next, found.next_sentence.next >= 0.5],
      [t("task.other"), found.next_sentence.other, found.next_sentence.next < 0.5],
    ]);
  return plain(found);
}

/** A prediction of an unknown kind: one row per value. */
function plain(found) {
  const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const rows = Object.entries(found).map(([name, value]) =>
    el("tr", {}, el("th", {}, name), el("td", { lang: "" }, shown(value))),
  );
  return el("table", { class: "figures" }, el("tbody", {}, ...rows));
}

function labels(found) {
  if (typeof found.value === "number") return el("p", { class: "value" }, found.value.toPrecision(6));
  const chosen = new Set(found.labels ?? [found.label]);
  const rows = Object.entries(found.scores).sort((a, b) => b[1] - a[1]);
  return [
    bars(rows.slice(0, 30).map(([name, fraction]) => [name, fraction, chosen.has(name)])),
    found.labels?.length === 0 ? el("p", { class: "hint" }, t("task.nolabel")) : null,
  ];
}

/** rows: [[name, fraction, chosen], …] */
function bars(rows, figure = percent) {
  return el(
    "ul",
    { class: "bars read" },
    ...rows.map(([name, fraction, on]) =>
      el(
        "li",
        { class: on ? "on" : "" },
        el("span", { class: "name", lang: "" }, name),
        bar(fraction, on ? "" : "pale"),
        el("span", { class: "figure" }, figure(fraction)),
      ),
    ),
  );
}

function entities(text, found) {
  const names = [...new Set(found.entities.map((entity) => entity.label))].sort();
  const hue = (label) => `hue-${names.indexOf(label) % HUES}`;
  const said = marked(text, found.entities, (part, entity) =>
    el("mark", { class: hue(entity.label), title: percent(entity.score) }, part, el("small", {}, entity.label)),
  );
  const rows = found.entities.map((entity) =>
    el(
      "tr",
      {},
      el("td", { lang: "" }, entity.text),
      el("td", {}, el("mark", { class: hue(entity.label) }, entity.label)),
      el("td", { class: "figure" }, percent(entity.score)),
      el("td", { class: "figure faint" }, `${entity.start}–${entity.end}`),
    ),
  );
  if (!rows.length)
    return [el("p", { class: "passage", lang: "" }, text), el("p", { class: "hint" }, t("task.noentity"))];
  return [
    el("p", { class: "passage", lang: "" }, ...said),
    el("table", { class: "figures" }, el("tbody", {}, ...rows)),
  ];
}

function tags(text, found) {
  const names = [...new Set(found.tags)].sort();
  const words = found.words.map(([start, end], n) => ({ start, end, tag: found.tags[n] }));
  return el(
    "p",
    { class: "passage", lang: "" },
    ...marked(text, words, (part, word) =>
      el("mark", { class: `hue-${names.indexOf(word.tag) % HUES}` }, part, el("small", {}, word.tag)),
    ),
  );
}

function span(context, found) {
  const summary =
    found.start === null || !found.answer
      ? el("p", { class: "hint" }, t("task.noanswer", { percent: percent(found.probability) }))
      : el("p", { class: "value", lang: "" }, found.answer, " ", el("small", {}, percent(found.probability)));
  const ranges = found.start === null ? [] : [{ start: found.start, end: found.end }];
  const others = found.candidates
    .slice(0, 5)
    .map((one) => [one.answer, one.probability, one.start === found.start && one.end === found.end]);
  return [
    summary,
    el("p", { class: "passage", lang: "" }, ...marked(context, ranges, (part) => el("mark", {}, part))),
    others.length > 1 ? bars(others) : null,
  ];
}

function ranking(passages, found) {
  const scores = found.scores,
    low = Math.min(...scores),
    high = Math.max(...scores);
  const areFractions = low >= 0 && high <= 1; // otherwise scaled between the lowest and the highest
  const between = (score) => (areFractions ? score : high > low ? (score - low) / (high - low) : 1);
  const rows = found.order.map((n, rank) => [passages[n], between(scores[n]), rank === 0, scores[n]]);
  return el(
    "ol",
    { class: "bars read ranked" },
    ...rows.map(([text, fraction, on, score]) =>
      el(
        "li",
        { class: on ? "on" : "" },
        el("span", { class: "name", lang: "" }, text),
        bar(fraction, on ? "" : "pale"),
        el("span", { class: "figure" }, score.toFixed(3)),
      ),
    ),
  );
}

function written(found) {
  const text = found.generated_text ?? found.output;
  const ended = el("p", { class: "faint small" }, found.finish_reason === "eos" ? t("task.ended") : t("task.cut"));
  return [
    el(
      "p",
      { class: "passage", lang: "" },
      found.continues ? el("span", { class: "faint" }, found.text) : null,
      el("b", {}, text),
    ),
    ended,
  ];
}
