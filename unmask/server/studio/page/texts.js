// The page's texts in the selected language.

import en from "./en.js";
import zh from "./zh.js";
import { store, stored } from "./memory.js";

const TABLES = { en, zh };

export const language = () => stored("language", navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
export const setLanguage = (name) => store("language", name);

/** An example text in a language of the model, or made of the words in its vocabulary.
    field: describes a field of a task that the page may not know. */
export function example(key, model, field = { holds: "text", required: true }) {
  if (model.sample) return fromSample(key, model.sample, field);
  const known = model.languages.includes(language()) ? language() : model.languages[0];
  const usual = field.holds === "texts" ? "task.choose.choices" : "task.classify.text";
  return TABLES[known][`${key}.example`] ?? (field.required ? TABLES[known][`${usual}.example`] : "");
}

function fromSample(key, { words, text, masked }, field) {
  if (key === "fill") return masked;
  if (key === "meaning.word") return words[0] ?? "";
  if (key === "meaning") return words.slice(1).map((word) => `${words[0]} ${word}`).join("\n");
  if (field.holds === "place") return words[0] ?? "";
  if (key.endsWith(".pair") || !field.required) return "";
  return field.holds === "texts" ? words.slice(0, 3).join("\n") : text;
}

/** The text of a key with its {names} replaced, or `otherwise` if there is no such key. */
export function t(key, values = {}, otherwise = key) {
  const text = TABLES[language()][key] ?? otherwise;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}
