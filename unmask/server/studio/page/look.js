// Inspect: surprisal of each token, attention weights, and attributions of a prediction.

import { renderInto, warningNote, post } from "./api.js";
import { attention } from "./attention.js";
import { area, el, field, marked, readable, select } from "./dom.js";
import { example, t } from "./texts.js";
import { isMask, isWord, pieces } from "./words.js";

const now = { text: "", given: "", pair: "", target: "" };
const WORST = 12; // nats at which the color is strongest

export function show(node, [model]) {
  if (now.text === now.given) now.text = now.given = example("look", model);
  const input = area(now.text, { id: "text" });
  const pair = area(now.pair, { id: "pair", rows: 1 });
  input.addEventListener("input", () => (now.text = input.value));
  pair.addEventListener("input", () => (now.pair = pair.value));
  const parts = Object.fromEntries(
    ["attention", "explain", "score"].map((name) => [name, el("div", { class: "found" })]),
  );
  const targets = model.labels.length
    ? select(
        [["", t("look.likeliest")], ...model.labels.map((label) => [label, label])],
        model.labels.includes(now.target) ? now.target : "",
        (value) => ((now.target = value), explain()),
        { id: "target", "aria-label": t("look.target") },
      )
    : null;

  const form = model.forms.find((form) => form.name === model.task);
  const several = form?.fields.some((one) => one.holds === "texts"); // the second input is a list, one item per line
  const texts = () => (now.pair ? [now.text, several ? now.pair.split("\n").filter(Boolean) : now.pair] : [now.text]);
  const explain = () =>
    renderInto(parts.explain, async () => {
      const [text, ...more] = texts();
      // A masked language model predicts the word at a mask. If there is no mask, the last word is masked.
      const all = pieces(text);
      const hide = model.methods.includes("fill") && !model.task && !more.length && !all.some(isMask);
      const last = hide ? all.findLastIndex(isWord) : -1;
      const hidden = last < 0 ? null : el("p", { class: "faint small" }, t("look.hidden", { word: all[last] }));
      if (last >= 0) all[last] = model.mask;
      const question = { model: model.name, parts: [all.join(""), ...more], target: targets?.value || null };
      const found = await post("explain", question);
      return [warningNote(found), hidden, ...explained(found)];
    });
  const all = () => {
    renderInto(parts.attention, async () => {
      const found = await post("attention", { model: model.name, text: now.text, pair: now.pair || null });
      return [warningNote(found), attention(found)];
    });
    explain();
    renderInto(parts.score, async () => {
      const found = await post("score", { model: model.name, text: now.text });
      return [warningNote(found), scored(found)].flat();
    });
  };
  const section = (name, more = null) =>
    el(
      "section",
      { class: "panel", id: name },
      el("h2", {}, t(`look.${name}`)),
      el("p", { class: "lead" }, t(`look.${name}.lead`)),
      more,
      parts[name],
    );
  node.append(
    el(
      "form",
      { on: { submit: (event) => (event.preventDefault(), all()) } },
      field(t("look.text"), input, t("keys.send")),
      field(t("look.pair"), pair),
      el("div", { class: "options" }, el("button", { class: "main", id: "look" }, t("look.do"))),
    ),
    section("score"),
    section("attention"),
    section("explain", targets ? el("div", { class: "options" }, field(t("look.target"), targets)) : null),
  );
  all();
}

function explained(found) {
  const most = Math.max(...found.tokens.map((token) => Math.abs(token.score)), 1e-9);
  const chips = found.tokens.map((token) =>
    el(
      "span",
      {
        class: "chip",
        lang: "",
        title: token.score.toFixed(4),
        style: { background: shade(token.score >= 0 ? "--accent" : "--second", Math.abs(token.score) / most) },
      },
      readable(token.token),
      el("small", {}, token.score.toFixed(2)),
    ),
  );
  const figures = [
    t("look.value", { target: String(found.target), value: Number(found.value).toFixed(3) }),
    found.method,
  ];
  return [
    el("p", { class: "chips" }, ...chips),
    el(
      "p",
      { class: "faint small" },
      el("span", { class: "key toward" }),
      t("look.toward"),
      el("span", { class: "key against" }),
      t("look.against"),
    ),
    el("p", { class: "faint small" }, figures.join(" · ")),
  ];
}

function scored(found) {
  const tokens = found.per_token.filter((token, n, all) => n === 0 || token.start >= all[n - 1].end);
  const said = marked(found.text, tokens, (part, token) =>
    el(
      "span",
      {
        class: `scored ${token.is_surprising ? "odd" : ""}`,
        title: token.logprob.toFixed(2),
        style: { "--heat": shade("--second", Math.min(1, -token.logprob / WORST)) },
      },
      el("span", { lang: "" }, part),
      el("small", {}, token.logprob.toFixed(1)),
    ),
  );
  const kind = found.pseudo ? "look.pseudo" : "look.perplexity";
  return [
    el("p", { class: "sentence" }, ...said),
    el(
      "p",
      { class: "faint small" },
      t("look.total", { total: found.total.toFixed(2), tokens: found.per_token.length }),
      " · ",
      t(kind, { value: found.perplexity < 1e5 ? found.perplexity.toFixed(1) : found.perplexity.toExponential(1) }),
    ),
  ];
}

const shade = (name, fraction) => `color-mix(in srgb, var(${name}) ${(70 * fraction).toFixed(1)}%, transparent)`;
