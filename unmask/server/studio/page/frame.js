// What the pages have in common: the name, and the switches for language and theme.

import { el } from "./dom.js";
import { store, stored } from "./memory.js";
import { language, setLanguage, t } from "./texts.js";

const THEMES = ["auto", "light", "dark"];

export const brand = () => el("a", { class: "brand", href: "#", "aria-label": "unmask" }, "un", el("b", {}, "mask"));

export function setDocumentLanguage() {
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
}

/** Buttons for language and theme; `show` renders the page again. */
export function switches(show) {
  const theme = stored("theme", "auto");
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  const other = language() === "en" ? "zh" : "en";
  const again = (id) => {
    show();
    document.getElementById(id)?.focus();
  };
  return [
    el(
      "button",
      {
        class: "quiet",
        id: "language",
        lang: other === "zh" ? "zh-CN" : "en",
        "aria-label": t("switch.language"),
        on: { click: () => (setLanguage(other), again("language")) },
      },
      other === "zh" ? "中文" : "EN",
    ),
    el(
      "button",
      {
        class: "quiet",
        id: "theme",
        title: t(`theme.${theme}`),
        "aria-label": t("switch.theme", { now: t(`theme.${theme}`) }),
        on: { click: () => (store("theme", next), applyTheme(), again("theme")) },
      },
      { auto: "◐", light: "○", dark: "●" }[theme],
    ),
  ];
}

export function applyTheme() {
  const theme = stored("theme", "auto");
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
}
