// What the server is asked, and its errors in its own words.

import { el } from "./dom.js";
import { t } from "./texts.js";

/** A mistake that the server explains: what was got, what is valid, what mends it. */
export class Problem extends Error {
  constructor(said) {
    super(said.message);
    Object.assign(this, { expected: said.expected, hint: said.hint, gone: said.gone === true });
  }
}

export const get = (path, values = {}) => send(`studio/${path}?${new URLSearchParams(values)}`, {});

export const post = (path, body) =>
  send(`studio/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body, (_, value) => value?.toWellFormed?.() ?? value), // half a character cannot be sent
  });

async function send(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Problem({ message: t("server.gone"), gone: true, hint: "unmask studio runs/" });
  }
  const found = await answer.json().catch(() => ({}));
  const warning = answer.headers.get("x-unmask-warning");
  if (warning) warned.set(found, warning);
  if (answer.ok) return found;
  const said = typeof found.error === "object" && found.error ? found.error : { message: found.error };
  throw new Problem({ ...said, message: said.message || t("server.said", { status: answer.status }) });
}

const warned = new WeakMap(); // answer → what the server warns of

/** What stands above an answer that is not to be trusted; null above others. */
export function note(found) {
  const share = /^unknown_tokens: (\d+)%/.exec(warned.get(found) ?? "")?.[1];
  return share ? el("p", { class: "trouble note", role: "status" }, t("unknown.note", { share })) : null;
}

/** What a view shows where it cannot show an answer. */
export function trouble(problem) {
  if (!(problem instanceof Problem)) throw problem;
  return el(
    "div",
    { class: "trouble", role: "alert" },
    el("p", {}, problem.message),
    problem.expected ? el("p", { class: "faint" }, `${t("problem.expected")} `, problem.expected) : null,
    problem.hint ? el("p", { class: "faint" }, `${t("problem.hint")} `, el("code", {}, problem.hint)) : null,
  );
}

/** Put into `node` what `work` gives, or its trouble; of several calls for one node only the last one counts. */
export async function into(node, work) {
  const mine = (node.asked = (node.asked ?? 0) + 1);
  node.setAttribute("aria-busy", "true");
  let children;
  try {
    children = [await work()].flat();
  } catch (problem) {
    children = [trouble(problem)];
  }
  if (mine !== node.asked) return;
  node.removeAttribute("aria-busy");
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}
