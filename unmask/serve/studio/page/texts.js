// The words of the page in the language of its reader.

import en from "./en.js";
import zh from "./zh.js";
import { keep, kept } from "./memory.js";

const TABLES = { en, zh };

export const language = () => kept("language", navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
export const speak = (name) => keep("language", name);

/** The text of a key, its {names} replaced. */
export function t(key, values = {}) {
  const text = TABLES[language()][key];
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}
