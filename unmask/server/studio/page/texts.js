// The words of the page in the language of its reader.

import en from "./en.js";
import zh from "./zh.js";
import { keep, kept } from "./memory.js";

const TABLES = { en, zh };

export const language = () => kept("language", navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
export const speak = (name) => keep("language", name);

/** An example text in a language that the model reads: the page's own if it can, else one of the model's own words. */
export function example(key, model) {
  if (model.own) return own(key, model.own);
  const known = model.languages.includes(language()) ? language() : model.languages[0];
  return TABLES[known][`${key}.example`];
}

function own(key, { words, text, masked }) {
  if (key === "fill") return masked;
  if (key === "meaning.word") return words[0] ?? "";
  if (key === "meaning") return words.slice(1).map((word) => `${words[0]} ${word}`).join("\n");
  if (key.endsWith(".pair")) return "";
  if (key.endsWith(".predicate")) return words[0] ?? "";
  return /\.(choices|passages)$/.test(key) ? words.slice(0, 3).join("\n") : text;
}

/** The text of a key, its {names} replaced. */
export function t(key, values = {}) {
  const text = TABLES[language()][key];
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}
