// Task: the form that a model was fine-tuned for, and its answer. Two models side by side.

import { into, note, post } from "./api.js";
import { answer } from "./answers.js";
import { beside } from "./beside.js";
import { area, el, field, select } from "./dom.js";
import { example, t } from "./texts.js";

// form → its fields: a name, whether it holds several texts, one a line. A field's texts are named task.FORM.FIELD.
const FORMS = {
  classify: [["text"], ["pair"]],
  tag: [["text"], ["predicate"]],
  answer: [["question"], ["context"]],
  choose: [["text"], ["choices", "lines"]],
  rank: [["query"], ["passages", "lines"]],
  generate: [["text"]],
  similarity: [["text"], ["other"]],
  next: [["text"], ["other"]],
};
const SECOND = ["pair", "predicate"]; // asked for only where the model reads a second text
const now = { form: "", forms: {}, typed: {}, length: "40" }; // forms: by model

export function show(node, models) {
  const [model] = models;
  const forms = model.forms.length ? model.forms : ["classify"]; // which says what the model would need
  now.form = now.forms[model.name] ?? forms[0];
  const typed = (name) => now.typed[`${now.form}.${name}`] ?? example(`task.${now.form}.${name}`, model);
  const { node: answers, columns } = beside(models);
  const fields = FORMS[now.form].filter(([name]) => !SECOND.includes(name) || model.parts[1] === 2);
  const inputs = fields.map(([name, lines]) => {
    const input = area(typed(name), { id: name, rows: lines ? 4 : name === "context" ? 3 : 1 });
    input.addEventListener("input", () => (now.typed[`${now.form}.${name}`] = input.value));
    return field(t(`task.${now.form}.${name}`), input, lines ? t("task.lines") : null);
  });
  const parts = () =>
    fields
      .map(([name, lines]) =>
        lines
          ? typed(name)
              .split("\n")
              .map((s) => s.trim())
              .filter(Boolean)
          : typed(name),
      )
      .filter((part, n) => n === 0 || part !== "" || model.parts[0] === 2 || fields[n][0] !== "pair");
  const ask = () =>
    columns.forEach(({ model: one, found }) =>
      into(found, async () => {
        const question = { model: one.name, form: now.form, parts: parts(), length: Number(now.length) };
        const said = await post("task", question);
        return [note(said), answer(question.form, question.parts, said)].flat();
      }),
    );
  const again = (value) => {
    now.forms[model.name] = value;
    node.replaceChildren(...[...node.children].slice(0, 2));
    show(node, models);
  };
  const lengths = ["20", "40", "80", "160"].map((n) => [n, n]);
  node.append(
    el(
      "form",
      { on: { submit: (event) => (event.preventDefault(), ask()) } },
      forms.length > 1
        ? el(
            "div",
            { class: "options" },
            field(
              t("task.form"),
              select(
                forms.map((name) => [name, t(`task.${name}`)]),
                now.form,
                again,
                { id: "form" },
              ),
            ),
          )
        : null,
      ...inputs,
      el(
        "div",
        { class: "options" },
        now.form === "generate"
          ? field(
              t("task.length"),
              select(lengths, now.length, (value) => (now.length = value), { id: "length" }),
            )
          : null,
        el("button", { class: "main", id: "ask" }, t("task.do")),
        el("span", { class: "faint small" }, t("keys.send")),
      ),
    ),
    answers,
  );
  ask();
}
