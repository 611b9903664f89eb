// The words of the page in the language of its reader.

import en from "./en.js";
import zh from "./zh.js";
import { keep, kept } from "./memory.js";

const TABLES = { en, zh };

export const language = () => kept("language", navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
export const speak = (name) => keep("language", name);

/** An example text in a language that the model reads: the page's own if it can, else one of the model's own words.
    field: of a task that the page may not know, what it holds and whether it is required. */
export function example(key, model, field = { holds: "text", required: true }) {
  if (model.sample) return own(key, model.sample, field);
  const known = model.languages.includes(language()) ? language() : model.languages[0];
  const usual = field.holds === "texts" ? "task.choose.choices" : "task.classify.text";
  return TABLES[known][`${key}.example`] ?? (field.required ? TABLES[known][`${usual}.example`] : "");
}

function own(key, { words, text, masked }, field) {
  if (key === "fill") return masked;
  if (key === "meaning.word") return words[0] ?? "";
  if (key === "meaning") return words.slice(1).map((word) => `${words[0]} ${word}`).join("\n");
  if (field.holds === "place") return words[0] ?? "";
  if (key.endsWith(".pair") || !field.required) return "";
  return field.holds === "texts" ? words.slice(0, 3).join("\n") : text;
}

/** The text of a key, its {names} replaced; `otherwise` where the page has no such key. */
export function t(key, values = {}, otherwise = key) {
  const text = TABLES[language()][key] ?? otherwise;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}
