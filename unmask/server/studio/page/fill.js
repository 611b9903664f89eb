// Fill: type a text, mask words by clicking, insert a candidate. Supports two models side by side.

import { renderInto, warningNote, post } from "./api.js";
import { modelColumns } from "./columns.js";
import { area, arrows, bar, el, field, marked, percent, readable, select } from "./dom.js";
import { example, t } from "./texts.js";
import { isMask, isWord, pieces } from "./words.js";

const MASK = "[MASK]";
const PAUSE = 300; // milliseconds after the last keystroke until the request is sent

// Kept while the page is open: the text, the words behind its masks ("" = unknown), the offset of the last insertion.
const now = { text: "", given: "", hidden: [], put: -1, top_k: "5", num_beams: "0", max_subwords: "1", only: "" };

export function show(node, models) {
  const given = example("fill", models[0]);
  if (now.text === now.given) Object.assign(now, { text: given, given, hidden: [] });
  const paper = el("p", { class: "paper", lang: "", "aria-label": t("fill.words") });
  const { node: answers, columns } = modelColumns(models);
  const input = area(now.text, { id: "text", "aria-label": t("fill.text") });
  let timer;

  function change(text, hidden, put = -1) {
    Object.assign(now, { text, hidden, put });
    if (input.value !== text) {
      input.value = text;
      input.dispatchEvent(new Event("input"));
    }
    write();
    ask();
  }

  function write() {
    const focused = [...paper.children].indexOf(document.activeElement);
    let mask = -1,
      at = 0;
    paper.replaceChildren(
      ...pieces(now.text).map((piece) => {
        const start = at;
        at += [...piece].length;
        if (isMask(piece)) return hiddenWord(++mask);
        if (!isWord(piece)) return document.createTextNode(piece);
        const number = mask + 1; // masks before this word keep their words
        return el(
          "button",
          {
            type: "button",
            class: `word ${now.put >= start && now.put < at ? "new" : ""}`,
            title: t("fill.hide"),
            "aria-pressed": "false",
            on: {
              click: () =>
                change(replaced(start, piece, MASK), [
                  ...now.hidden.slice(0, number),
                  piece,
                  ...now.hidden.slice(number),
                ]),
            },
          },
          piece,
        );
      }),
    );
    if (focused >= 0) paper.children[Math.min(focused, paper.children.length - 1)]?.focus();
  }

  function hiddenWord(number) {
    const was = now.hidden[number] ?? "";
    const count = masks(now.text).length;
    return el(
      "button",
      {
        type: "button",
        class: "word hidden",
        "aria-pressed": "true",
        title: was ? t("fill.was", { word: was }) : t("fill.unknown"),
        "aria-label": t("fill.mask", { number: number + 1 }),
        on: {
          click: () => {
            if (!was) return columns[0].found.querySelectorAll("ol")[number]?.querySelector("button")?.focus();
            const start = masks(now.text)[number];
            change(
              replaced(start.at, start.text, was),
              now.hidden.filter((_, n) => n !== number),
            );
          },
        },
      },
      count > 1 ? String(number + 1) : "?",
    );
  }

  function ask() {
    clearTimeout(timer);
    for (const { model, found } of columns) {
      renderInto(found, async () => {
        if (!masks(now.text).length && model.methods.includes("fill"))
          return el("p", { class: "hint" }, t("fill.hint"));
        const settings = {
          top_k: Number(now.top_k),
          num_beams: Number(now.num_beams),
          max_subwords: Number(now.max_subwords),
        };
        const only = now.only.split(/[,，、;；]/).map((word) => word.trim()).filter(Boolean);
        if (only.length) Object.assign(settings, { candidates: only, max_subwords: 1 });
        const filling = await post("fill", { model: model.name, text: now.text, ...settings });
        return [
          warningNote(filling),
          ...filling.masks.map((mask, number) => candidates(mask, number, filling.masks.length)),
          together(filling),
        ];
      });
    }
  }

  function candidates(mask, number, count) {
    const put = (candidate) => {
      const text = candidate.text.replaceAll("<mask>", MASK);
      change(
        text,
        now.hidden.filter((_, n) => n !== number),
        mask.start + (/\s/.test([...text][mask.start] ?? "") ? 1 : 0),
      );
      document.getElementById("text").form.querySelector(".word.new")?.focus();
    };
    const list = el(
      "ol",
      { class: "bars" },
      ...mask.candidates.map((candidate) =>
        el(
          "li",
          {},
          el(
            "button",
            { type: "button", title: t("fill.put"), on: { click: () => put(candidate) } },
            el("span", { class: "name", lang: "" }, readable(candidate.token)),
            bar(candidate.probability),
            el("span", { class: "figure" }, percent(candidate.probability)),
          ),
        ),
      ),
    );
    const was = now.hidden[number];
    const title = count > 1 ? t("fill.mask", { number: number + 1 }) : t("fill.candidates");
    return el(
      "div",
      { class: "mask" },
      el("h3", {}, title, was ? el("i", {}, t("fill.was", { word: was })) : null),
      arrows(list),
    );
  }

  function together(filling) {
    if (filling.masks.length < 2) return null;
    const whole = filling.joint?.length
      ? filling.joint.map((one) => ({ text: one.text, spans: one.spans, figure: one.logprob.toFixed(2) }))
      : [{ text: filling.best, spans: filling.best_spans, figure: "" }];
    const title = filling.joint?.length ? t("fill.joint") : t("fill.best");
    const list = el(
      "ol",
      { class: "whole" },
      ...whole.map(({ text, spans, figure }) =>
        el(
          "li",
          {},
          el(
            "button",
            { type: "button", title: t("fill.putall"), on: { click: () => change(text, []) } },
            el(
              "span",
              { lang: "" },
              ...marked(
                text,
                spans.map(([start, end]) => ({ start, end })),
                (part) => el("mark", {}, part),
              ),
            ),
            el("span", { class: "figure" }, figure),
          ),
        ),
      ),
    );
    return el("div", { class: "mask wide" }, el("h3", {}, title), arrows(list));
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  }

  const only = el("input", { id: "only", type: "text", lang: "", spellcheck: "false", value: now.only });
  only.addEventListener("input", () => {
    now.only = only.value;
    soon();
  });
  const option = (key, values) => select(values, now[key], (value) => ((now[key] = value), ask()), { id: key });
  input.addEventListener("input", () => {
    if (input.value === now.text) return;
    const count = masks(input.value).length;
    const known = count === masks(now.text).length ? now.hidden : [];
    Object.assign(now, { text: input.value, hidden: known, put: -1 });
    write();
    soon();
  });
  node.append(
    el(
      "form",
      { on: { submit: (event) => (event.preventDefault(), ask()) } },
      field(t("fill.text"), input, t("fill.how")),
      paper,
      el(
        "div",
        { class: "options" },
        field(
          t("fill.top"),
          option(
            "top_k",
            ["3", "5", "10", "20"].map((n) => [n, n]),
          ),
        ),
        field(
          t("fill.several"),
          option("num_beams", [
            ["0", t("fill.alone")],
            ["5", t("fill.beam")],
          ]),
        ),
        field(
          t("fill.grow"),
          option(
            "max_subwords",
            ["1", "2", "3"].map((n) => [n, n === "1" ? t("fill.one") : t("fill.upto", { n })]),
          ),
        ),
        field(t("fill.only"), only, t("fill.only.how")),
      ),
    ),
    answers,
  );
  write();
  ask();
  return () => clearTimeout(timer);
}

/** Positions of the masks: [{at, text}], `at` in characters. */
function masks(text) {
  const found = [];
  let at = 0;
  for (const piece of pieces(text)) {
    if (isMask(piece)) found.push({ at, text: piece });
    at += [...piece].length;
  }
  return found;
}

function replaced(at, before, after) {
  const letters = [...now.text];
  letters.splice(at, [...before].length, ...after);
  return letters.join("");
}
