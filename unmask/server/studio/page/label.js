// The page of `unmask label`: one text at a time, one key per label. The server saves each label before it answers.

import { errorBox, get, post, server } from "./api.js";
import { bar, el, percent } from "./dom.js";
import { applyTheme, brand, setDocumentLanguage, switches } from "./frame.js";
import { t } from "./texts.js";

const KEYS = [..."123456789abcdefghijklmnopqrstvwxyz"]; // without u, which clears the label
const LONG = 600; // characters above which a text is shown in a smaller font

let session = null; // { id, file, labels, resume, next }
let now = null; // the text on the page: { index, total, labeled, text, label, suggested, probability }
let busy = false; // a request is under way; keys wait for the next text
let problem = null;
let wanted = ""; // in the search box

const view = document.getElementById("view");
const say = (text) => (document.getElementById("status").textContent = text);

/** Send a request, then show its text, or its error above the current text. */
async function go(request, said = "") {
  if (busy) return;
  busy = true;
  say("");
  try {
    now = await request();
    [problem, wanted] = [null, ""];
    history.replaceState(null, "", `#${now.index + 1}`);
    say(said);
  } catch (error) {
    problem = error;
  }
  busy = false;
  show();
}

/** Show the text whose number is in the URL (#12), as after a reload, or else the first one without a label. */
function openLocation() {
  const number = parseInt(location.hash.slice(1));
  return go(() => get("label/text", number > 0 ? { index: number - 1 } : {}));
}

const open = (index) => go(() => get("label/text", { index }));
const save = (label, said) => go(() => post("label/save", { id: session.id, index: now.index, label }), said);
const choose = (label) => save(label, t("label.saved", { label }));
const back = () => now.index > 0 && open(now.index - 1);
const skip = () => now.index < now.total && open(now.index + 1);
const clear = () => now.label && save("", t("label.cleared"));
const accept = () => (now.label ? skip() : now.suggested && choose(now.suggested));

function show() {
  setDocumentLanguage();
  document.title = session ? t("label.title", { file: session.file }) : "unmask label";
  document.getElementById("top").replaceChildren(
    brand(),
    el("span", { class: "file" }, session?.file ?? ""),
    el("div", { class: "tools" }, ...switches(show)),
  );
  const trouble = problem ? [errorBox(problem)] : [];
  view.replaceChildren(...trouble, ...(!now ? [] : now.text === null ? ending() : labeling()));
  (document.getElementById("text") ?? view).focus({ preventScroll: true });
}

function progress() {
  return el(
    "div",
    { class: "progress" },
    bar(now.labeled / now.total),
    el("b", { id: "labeled" }, t("label.progress", now)),
    el("span", { class: "faint" }, now.text === null ? "" : t("label.position", { number: now.index + 1, total: now.total })),
  );
}

function labeling() {
  const known = session.labels.includes(now.label);
  const list = el("div", { class: "labels", role: "group", "aria-label": t("label.choose") });
  const fill = () => list.replaceChildren(...buttons());
  fill();
  return [
    progress(),
    el(
      "div",
      {
        class: `text ${now.text.length > LONG ? "long" : ""}`,
        id: "text",
        tabindex: "0",
        role: "region",
        "aria-label": t("label.position", { number: now.index + 1, total: now.total }),
      },
      now.text,
    ),
    now.label && !known ? el("p", { class: "other" }, t("label.other", { label: now.label })) : null,
    session.labels.length > KEYS.length ? search(fill) : null,
    list,
    moves(),
  ].filter(Boolean);
}

const found = () => session.labels.filter((label) => label.toLowerCase().includes(wanted.toLowerCase()));

function buttons() {
  const some = found();
  if (!some.length) return [el("p", { class: "faint" }, t("label.nothing"))];
  return some.map((label) => {
    const key = KEYS[session.labels.indexOf(label)];
    const suggested = label === now.suggested;
    const chance = now.probability === null ? "" : ` ${percent(now.probability)}`;
    return el(
      "button",
      {
        class: suggested ? "suggested" : null,
        "aria-pressed": label === now.label ? "true" : "false",
        "aria-keyshortcuts": key,
        on: { click: () => choose(label) },
      },
      key ? el("kbd", {}, key) : null,
      el("span", { class: "name" }, label, suggested ? el("small", {}, `${t("label.suggested")}${chance}`) : null),
      suggested && !now.label ? el("kbd", {}, t("label.enter")) : null,
    );
  });
}

/** A search box for labels, of which only the first ones have keys: Enter takes the first one found. */
function search(fill) {
  const input = el("input", { class: "search", type: "search", placeholder: `${t("label.search")}  /`, value: wanted });
  input.setAttribute("aria-label", t("label.search"));
  input.addEventListener("input", () => ((wanted = input.value), fill()));
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && wanted && found().length) choose(found()[0]);
    if (event.key === "Escape") document.getElementById("text").focus();
  });
  return input;
}

function moves() {
  const move = (id, act, ...keys) =>
    el("button", { class: "quiet", id, on: { click: act } }, ...keys.map((key) => el("kbd", {}, key)), t(`label.${id}`));
  return el(
    "div",
    { class: "moves" },
    now.index > 0 ? move("back", back, "←") : null,
    move("skip", skip, "→", t("label.space")),
    now.label ? move("clear", clear, "u") : null,
  );
}

function ending() {
  const count = now.total - now.labeled;
  return [
    progress(),
    el("h1", { id: "done" }, count ? t("label.left", now) : t("label.done", now)),
    count ? el("p", {}, t("label.skipped", { count })) : null,
    count ? el("p", {}, el("button", { class: "main", on: { click: () => open(now.unlabeled) } }, t("label.again")), " ", el("kbd", {}, t("label.enter"))) : null,
    el("p", {}, t("label.next")),
    el("pre", {}, el("code", { id: "next" }, session.next)),
    el("div", { class: "moves" }, el("button", { class: "quiet", id: "back", on: { click: back } }, el("kbd", {}, "←"), t("label.back"))),
  ].filter(Boolean);
}

function press(event) {
  const focused = document.activeElement;
  if (!now || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || focused instanceof HTMLInputElement) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if ((key === "Enter" || key === " ") && focused instanceof HTMLButtonElement) return; // presses the button
  const here = now.text !== null;
  const acts = { ArrowLeft: back, Backspace: back, ArrowRight: skip, " ": skip };
  if (here) Object.assign(acts, { Enter: accept, u: clear });
  else if (now.unlabeled < now.total) acts.Enter = () => open(now.unlabeled);
  if (here && session.labels.length > KEYS.length) acts["/"] = () => document.querySelector(".search").focus();
  const label = here ? session.labels[KEYS.indexOf(key)] : undefined;
  const act = acts[key] ?? (label === undefined ? undefined : () => choose(label));
  if (!act) return;
  event.preventDefault();
  if (!event.repeat || key.startsWith("Arrow")) act(); // a key that is held down labels one text
}

async function start() {
  applyTheme();
  addEventListener("keydown", press);
  addEventListener("hashchange", () => session && openLocation());
  try {
    session = await get("label/session");
    server.start = session.resume;
    await openLocation();
  } catch (error) {
    problem = error;
    show();
  }
}

start();
