// Meaning: vectors of a word in many sentences as points, and similarities of the sentences.

import { renderInto, warningNote, post } from "./api.js";
import { area, el, field, marked, select } from "./dom.js";
import { color, draw, plain } from "./plot.js";
import { example, t } from "./texts.js";

const now = { sentences: "", word: "", given: "", layer: "-1" };
const WRITTEN = 14; // the matrix shows numbers up to this many sentences

export function show(node, [model]) {
  if (now.sentences === now.given)
    Object.assign(now, {
      sentences: example("meaning", model),
      given: example("meaning", model),
      word: example("meaning.word", model),
    });
  if (Number(now.layer) > model.layers) now.layer = "-1";
  const input = area(now.sentences, { id: "sentences", rows: 6 });
  const word = el("input", { id: "word", value: now.word, autocomplete: "off", spellcheck: "false" });
  input.addEventListener("input", () => (now.sentences = input.value));
  word.addEventListener("input", () => (now.word = word.value));
  const layers = [
    ["-1", t("meaning.last")],
    ...Array.from({ length: model.layers }, (_, n) => [n, n ? t("meaning.layer", { n }) : t("meaning.embeddings")]),
  ];
  const points = el("div", { class: "found" }),
    matrix = el("div", { class: "found" });

  const lines = () =>
    now.sentences
      .split("\n")
      .map((line) => line.trim())
      .filter(Boolean);
  const scatter = () =>
    renderInto(points, async () => {
      const texts = lines();
      const found = await post("word", {
        model: model.name,
        word: now.word.trim(),
        sentences: texts,
        layer: Number(now.layer),
      });
      return [warningNote(found), scattered(found, texts)].flat();
    });
  const all = () => {
    scatter();
    renderInto(matrix, async () => {
      const found = await post("similarity", { model: model.name, sentences: lines() });
      return [warningNote(found), heat(found.similarity, lines())].flat();
    });
  };
  const section = (name, found) =>
    el(
      "section",
      { class: "panel", id: name },
      el("h2", {}, t(`meaning.${name}`)),
      el("p", { class: "lead" }, t(`meaning.${name}.lead`)),
      found,
    );
  node.append(
    el(
      "form",
      { on: { submit: (event) => (event.preventDefault(), all()) } },
      field(t("meaning.sentences"), input, t("keys.send")),
      el(
        "div",
        { class: "options" },
        field(t("meaning.word"), word),
        field(
          t("meaning.layername"),
          select(layers, now.layer, (value) => ((now.layer = value), scatter()), { id: "layer" }),
        ),
        el("button", { class: "main", id: "draw" }, t("meaning.do")),
      ),
    ),
    section("points", points),
    section("matrix", matrix),
  );
  all();
}

function scattered({ occurrences, points, explained_variance }, texts) {
  const missing = texts.length - new Set(occurrences.map((occurrence) => occurrence.number)).size;
  const plot = el("div", { class: "plot", role: "img", "aria-label": t("meaning.points") });
  const said = (occurrence) => marked(occurrence.text, [occurrence], (part) => el("b", {}, part));
  const list = el(
    "ol",
    { class: "held" },
    ...occurrences.map((occurrence) => el("li", { value: occurrence.number + 1, lang: "" }, ...said(occurrence))),
  );
  draw(
    plot,
    [
      {
        type: "scatter",
        mode: "markers+text",
        x: points.map((p) => p[0]),
        y: points.map((p) => p[1]),
        text: occurrences.map((occurrence) => String(occurrence.number + 1)),
        textposition: "top center",
        textfont: { color: color("--faint"), size: 12 },
        hovertext: occurrences.map((occurrence) => wrapped(occurrence.text)),
        hoverinfo: "text",
        marker: { color: color("--accent"), size: 11, opacity: 0.8, line: { width: 0 } },
      },
    ],
    {
      xaxis: {
        title: {
          text: t("meaning.axis", { percent: Math.round(100 * explained_variance[0]) }),
          font: { size: 12, color: color("--faint") },
        },
        showticklabels: false,
      },
      yaxis: {
        title: {
          text: t("meaning.axis", { percent: Math.round(100 * explained_variance[1]) }),
          font: { size: 12, color: color("--faint") },
        },
        showticklabels: false,
        scaleanchor: "x",
      },
      margin: { l: 36, r: 12, t: 16, b: 40 },
      height: 420,
    },
  );
  return [
    el("div", { class: "two-columns" }, plot, list),
    missing ? el("p", { class: "faint small" }, t("meaning.without", { n: missing })) : null,
  ];
}

function heat(values, texts) {
  const names = texts.map((text, n) => `${n + 1}  ${plain(short(text))}`);
  const plot = el("div", { class: "plot", role: "img", "aria-label": t("meaning.matrix") });
  const wide = innerWidth > 700;
  draw(
    plot,
    [
      {
        type: "heatmap",
        z: values,
        x: texts.map((_, n) => String(n + 1)),
        y: wide ? names : texts.map((_, n) => String(n + 1)),
        xgap: 2,
        ygap: 2,
        colorscale: [
          [0, color("--card")],
          [1, color("--accent")],
        ],
        zmin: Math.min(0, ...values.flat()),
        zmax: 1,
        text: texts.length <= WRITTEN ? values.map((row) => row.map((value) => value.toFixed(2))) : undefined,
        texttemplate: texts.length <= WRITTEN && wide ? "%{text}" : undefined,
        hovertext: values.map((row, a) =>
          row.map((value, b) => `${value.toFixed(3)}<br>${wrapped(texts[a])}<br>${wrapped(texts[b])}`),
        ),
        hoverinfo: "text",
        colorbar: { thickness: 10, outlinewidth: 0, tickfont: { color: color("--faint") } },
      },
    ],
    {
      xaxis: { type: "category", side: "bottom", showgrid: false },
      yaxis: { type: "category", autorange: "reversed", showgrid: false },
      height: Math.max(300, 90 + 34 * texts.length),
      margin: { l: 40, r: 8, t: 12, b: 36 },
    },
  );
  return plot;
}

const short = (text) => ([...text].length > 28 ? `${[...text].slice(0, 27).join("")}…` : text);

/** Wrap a hover label: plotly does not wrap lines. */
const wrapped = (text) => (plain(text).match(/.{1,60}(\s|$)|.{1,40}/gu) ?? [""]).join("<br>");
