// The table of all runs, as it is now.

import { get, listen } from "./api.js";
import { duration, el, empty, fill, number, swatch } from "./dom.js";
import { address, go } from "./main.js";

const COLUMNS = [
  ["id", "run"], ["state", "state"], [null, "return"], ["environment", "environment"], ["algorithm", "algorithm"], ["seed", "seed"], ["env_steps", "steps"],
  ["seconds", "time"], ["reward", "best"], ["last", "last"], ["solved", "solved"], ["started", "started"], ["tags", "tags"],
];
const AT_ONCE = 100;

export async function runsPage(place, params, going) {
  const chosen = new Set(params.getAll("run"));
  let [sort, shown, rows, timer] = [params.get("sort") ?? "started", AT_ONCE, [], 0];
  const filter = el("input", { type: "search", class: "grow", "aria-label": "Conditions", placeholder: "algorithm=ppo reward>400 tags~good, as in ludus list", value: params.get("filter") ?? "" });
  const message = el("p", { class: "note", role: "status" });
  const body = el("tbody", {});
  const actions = el("div", { class: "bar" });
  const sparks = new Map();

  function head() {
    return el("tr", {}, el("th", { scope: "col" }, el("span", { class: "visually-hidden" }, "selected")), COLUMNS.map(([key, title]) => {
      const by = sort.split(":")[0] === key;
      const order = by ? (sort.endsWith(":asc") ? "ascending" : "descending") : null;
      return el("th", { scope: "col", "aria-sort": order }, key === null ? title : el("button", { type: "button", onclick: () => {
        sort = by && !sort.endsWith(":asc") ? `${key}:asc` : key;
        load();
      } }, `${title}${order === "ascending" ? " ↑" : order ? " ↓" : ""}`));
    }));
  }
  const top = el("thead", {});

  async function load() {
    const conditions = filter.value.split(/\s+/).filter(Boolean);
    go(address("runs", { filter: filter.value, sort: sort === "started" ? "" : sort, run: [...chosen] }), true);
    try {
      const found = await get("runs", { filter: conditions, sort });
      if (!going()) return;
      if (found.error) throw new Error(found.error);
      rows = found.runs;
      message.className = "note";
      message.textContent = `${found.found} of ${found.count} runs${found.unread ? `; reading ${found.unread} more …` : ""}`;
      if (found.unread) timer = setTimeout(load, 50);
      if (!found.count && !found.unread) fill(place, el("h1", {}, "Runs"), empty("There is no run here yet. Train one:", "ludus train CartPole-v1:ppo"));
      draw();
    } catch (error) {
      message.className = "error";
      message.textContent = error.message;
    }
  }

  function draw() {
    fill(top, head());
    fill(body, rows.slice(0, shown).map(row));
    more.hidden = rows.length <= shown;
    act();
    drawSparks();
  }

  function row(run) {
    const box = el("input", { type: "checkbox", "aria-label": `select ${run.id}` });
    box.checked = chosen.has(run.id);
    box.addEventListener("change", () => {
      chosen[box.checked ? "add" : "delete"](run.id);
      act();
    });
    const state = el("td", {}, el("span", { class: `state-${run.state}` }, run.state === "lost" ? "killed" : run.state));
    const resume = run.state === "lost" ? el("div", { class: "note" }, "resume with ", el("code", { class: "command" }, run.resume)) : null;
    const spark = sparks.get(run.id) ?? el("td", { "data-spark": run.id });
    sparks.set(run.id, spark);
    return el("tr", { "data-run": run.id }, el("td", {}, box),
      el("th", { scope: "row" }, swatch(run.id), el("a", { href: address("curves", { run: run.id }) }, run.id), resume), state, spark,
      el("td", {}, run.environment ?? "–"), el("td", {}, run.algorithm ?? "–"), el("td", { class: "n" }, run.seed === null ? "–" : String(run.seed)),
      el("td", { class: "n" }, number(run.env_steps)), el("td", { class: "n" }, duration(run.seconds)), el("td", { class: "n" }, number(run.reward)),
      el("td", { class: "n" }, number(run.last)), el("td", {}, run.solved === null ? "–" : run.solved ? "yes" : "no"),
      el("td", {}, (run.started ?? "").slice(0, 16).replace("T", " ")), el("td", { class: "wrap" }, run.tags.join(", ")));
  }

  async function drawSparks(again = []) {
    const wanted = rows.slice(0, shown).map((run) => run.id).filter((id) => again.includes(id) || !sparks.get(id)?.dataset.drawn);
    for (let i = 0; i < wanted.length && going(); i += 50) {
      const found = await get("sparklines", { run: wanted.slice(i, i + 50) }).catch(() => ({}));
      for (const [id, values] of Object.entries(found)) {
        const cell = sparks.get(id);
        cell.dataset.drawn = "1";
        fill(cell, sparkline(values));
      }
    }
  }

  function act() {
    const runs = [...chosen];
    const link = (title, page, few) => el("button", { type: "button", disabled: !runs.length || (few && runs.length > few), onclick: () => go(address(page, { run: runs })) }, title);
    fill(actions, el("span", { class: "note" }, runs.length ? `${runs.length} selected:` : "Select runs to see them together:"),
      link("Curves", "curves"), link("Episodes side by side", "compare", 2), link("Differences of configs", "config"),
      el("button", { type: "button", disabled: !runs.length, onclick: () => { chosen.clear(); draw(); } }, "Select none"));
  }

  const more = el("button", { type: "button", hidden: true, onclick: () => { shown += 400; draw(); } }, "Show more");
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(load, 250);
  });
  fill(place, el("h1", {}, "Runs"), el("div", { class: "bar" }, filter), message, actions,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of runs" }, el("table", {}, top, body)), more);
  await load();
  const source = listen([], { changed: ({ runs }) => {
    load().then(() => drawSparks(runs));
  } });
  return { close: () => source.close() };
}

export function sparkline(values) {
  const good = values.filter((y) => y !== null);
  if (good.length < 2) return el("span", { class: "note" }, "–");
  const [low, high] = [Math.min(...good), Math.max(...good)];
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 96 22");
  svg.setAttribute("class", "spark");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `return from ${number(good[0])} to ${number(good.at(-1))}`);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const points = good.map((y, i) => `${((i / (good.length - 1)) * 94 + 1).toFixed(1)} ${(20 - ((y - low) / (high - low || 1)) * 18).toFixed(1)}`);
  path.setAttribute("d", `M${points.join("L")}`);
  path.setAttribute("fill", "none");
  path.setAttribute("stroke", "currentColor");
  path.setAttribute("stroke-width", "1.5");
  svg.append(path);
  return svg;
}
