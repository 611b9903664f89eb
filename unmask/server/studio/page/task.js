// Task: the form of the model's task, and its prediction. Supports two models side by side.

import { renderInto, warningNote, post } from "./api.js";
import { answer } from "./answers.js";
import { modelColumns } from "./columns.js";
import { area, el, field, select } from "./dom.js";
import { example, t } from "./texts.js";

// A form comes from the server: {name, method, view, about, fields: [{name, caption, holds, required}]}. What the page calls it and its
// fields is task.FORM and task.FORM.FIELD; for a task that the page does not know, what the server calls them.
const now = { forms: {}, typed: {}, length: "40" }; // forms: by model

export function show(node, models) {
  const [model] = models;
  const form = model.forms.find(({ name }) => name === now.forms[model.name]) ?? model.forms[0];
  const typed = (one) => now.typed[`${form.name}.${one.name}`] ?? example(`task.${form.name}.${one.name}`, model, one);
  const { node: answers, columns } = modelColumns(models);
  const inputs = form.fields.map((one) => {
    const lines = one.holds === "texts";
    const input = area(typed(one), { id: one.name, rows: lines ? 4 : one.name === "context" ? 3 : 1 });
    input.addEventListener("input", () => (now.typed[`${form.name}.${one.name}`] = input.value));
    return field(t(`task.${form.name}.${one.name}`, {}, named(one.caption)), input, lines ? t("task.lines") : null);
  });
  const value = (one) =>
    one.holds === "texts"
      ? typed(one)
          .split("\n")
          .map((s) => s.trim())
          .filter(Boolean)
      : typed(one);
  const record = () =>
    Object.fromEntries(
      form.fields.map((one) => [one.name, value(one)]).filter(([, given], n) => form.fields[n].required || given.length),
    );
  const ask = () =>
    columns.forEach(({ model: one, found }) =>
      renderInto(found, async () => {
        const question = { model: one.name, method: form.method, record: record(), length: Number(now.length) };
        const said = await post("task", question);
        return [warningNote(said), answer(form, question.record, said)].flat();
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
      model.forms.length > 1
        ? el(
            "div",
            { class: "options" },
            field(
              t("task.form"),
              select(
                model.forms.map(({ name, about }) => [name, t(`task.${name}`, {}, about ?? name)]),
                form.name,
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
        form.method === "generate"
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

/** A field's caption as a heading: SECOND TEXT → Second text. */
const named = (caption) => caption.charAt(0) + caption.slice(1).toLowerCase();
