// Which page is shown: the address says it, so that every view is a link.

import { get } from "./api.js";
import { el, empty, fill } from "./dom.js";
import { runsPage } from "./runs.js";
import { curvesPage } from "./curves.js";
import { episodePage } from "./episode.js";
import { comparePage } from "./compare.js";
import { configPage } from "./config.js";

const PAGES = {
  runs: ["Runs", runsPage], curves: ["Curves", curvesPage], episode: ["Episode", episodePage],
  compare: ["Compare", comparePage], config: ["Config and report", configPage],
};
let current = null;
let about = { version: "", runs: "", start: "" };

export function address(page, params) {
  const query = new URLSearchParams({ page });
  for (const [key, value] of Object.entries(params)) for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") query.append(key, one);
  return `?${query}`;
}

// Open a page; `quiet` only changes the address of the one that is shown.
export function go(target, quiet = false) {
  if (quiet) history.replaceState(null, "", target);
  else {
    history.pushState(null, "", target);
    route();
  }
}

function pageOf(params) {
  const named = params.get("page");
  if (named in PAGES) return named;
  return params.has("episode") ? "episode" : params.has("run") ? "curves" : "runs";
}

async function route() {
  const params = new URLSearchParams(location.search);
  if (params.has("token")) {
    params.delete("token"); // a cookie has it now
    history.replaceState(null, "", `?${params}`);
  }
  const page = pageOf(params);
  current?.close?.();
  const place = document.getElementById("main");
  drawTop(page, params);
  document.title = `${PAGES[page][0]} · Ludus inspector`;
  const shown = (current = { close() {} });
  fill(place, el("p", { class: "note", role: "status" }, "Loading …"));
  try {
    const made = await PAGES[page][1](place, params, () => current === shown);
    if (current === shown) shown.close = made?.close ?? (() => {});
    else made?.close?.();
  } catch (error) {
    if (current === shown) fill(place, el("h1", {}, PAGES[page][0]), el("p", { class: "error", role: "alert" }, error.message), empty("Go back to the list of", "Runs"));
  }
}

function drawTop(page, params) {
  const runs = params.getAll("run");
  const links = Object.entries(PAGES).map(([key, [title]]) =>
    el("a", { href: address(key, key === "runs" ? {} : { run: key === "episode" || key === "compare" ? runs.slice(0, 2) : runs }), "aria-current": key === page ? "page" : null }, title));
  const theme = el("button", { type: "button", onclick: () => {
    const dark = document.documentElement.dataset.theme === "dark";
    setTheme(dark ? "light" : "dark");
    route();
  } }, "Dark or light");
  fill(document.getElementById("top"), el("span", { class: "name" }, "Ludus inspector"), el("nav", { "aria-label": "Pages" }, links), el("span", { class: "note" }, about.runs), theme);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("ludus-theme", theme);
  } catch {
    // a browser that stores nothing forgets it
  }
}

function startTheme() {
  let stored = null;
  try {
    stored = localStorage.getItem("ludus-theme");
  } catch {
    // as above
  }
  document.documentElement.dataset.theme = stored ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='?']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
addEventListener("popstate", route);
startTheme();
about = await get("about").catch(() => about);
if (about.start && !location.search.replace(/[?&]token=[^&]*/, "")) history.replaceState(null, "", address("episode", { run: about.start }));
route();
