// The resolved config with origins, differences between runs, alerts, the report and videos.

import { get } from "./api.js";
import { el, empty, fill, swatch } from "./dom.js";
import { address } from "./main.js";

const region = (label, table) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
const header = (...titles) => el("thead", {}, el("tr", {}, titles.map((title) => el("th", { scope: "col" }, title))));

export async function configPage(place, params, going) {
  const ids = params.getAll("run");
  if (!ids.length) {
    fill(place, el("h1", {}, "Config and report"), empty("No run is selected. Choose one in the list of runs."), el("p", { class: "empty" }, el("a", { href: address("runs", {}) }, "Runs")));
    return null;
  }
  const [runs, configs] = await Promise.all([
    Promise.all(ids.map((id) => get(`runs/${encodeURIComponent(id)}`))), Promise.all(ids.map((id) => get(`runs/${encodeURIComponent(id)}/config`))),
  ]);
  if (!going()) return null;
  const alerts = el("div", {}, el("p", { class: "note" }, "Reading the metrics …"));
  fill(place, el("h1", {}, ids.length === 1 ? ids[0] : "Config and report"),
    ids.length > 1 ? differences(ids, configs) : null,
    el("section", { class: "card" }, el("h2", {}, "Alerts"), alerts),
    ids.map((id, i) => [settings(id, configs[i]), report(runs[i])]));
  const told = await Promise.all(ids.map((id) => get(`runs/${encodeURIComponent(id)}/alerts`).catch((error) => [{ line: error.message }])));
  if (!going()) return null;
  const lines = told.flatMap((found, i) => found.map((alert) => el("li", { class: "wrap" }, ids.length > 1 ? `${ids[i]}: ` : "", alert.line)));
  fill(alerts, lines.length ? el("ul", {}, lines) : el("p", { class: "note" }, "Nothing unusual."));
  return null;
}

function settings(id, config) {
  const only = el("input", { type: "checkbox" });
  only.checked = true;
  const search = el("input", { type: "search", "aria-label": `Search the config of ${id}`, placeholder: "search" });
  const body = el("tbody", {});
  const draw = () => {
    const rows = config.rows.filter((row) => (!only.checked || row.default !== null || row.origin !== "default") && row.path.includes(search.value));
    fill(body, rows.length ? rows.map((row) => el("tr", {}, el("th", { scope: "row" }, row.path), el("td", { class: "wrap" }, row.value), el("td", { class: "wrap" }, row.default ?? ""), el("td", { class: "wrap" }, row.origin))) : el("tr", {}, el("td", { colspan: 4 }, "Nothing fits.")));
  };
  only.addEventListener("change", draw);
  search.addEventListener("input", draw);
  draw();
  return el("section", { class: "card" }, el("h2", {}, swatch(id), `Config of ${id}`),
    el("p", { class: "note" }, [config.spec, ...(config.overrides ?? [])].join(" ")),
    el("div", { class: "bar" }, el("label", {}, only, "only what is not a default"), search),
    region(`Config of ${id}`, el("table", {}, header("setting", "value", "default, where it differs", "from"), body)));
}

function differences(ids, configs) {
  const values = configs.map((config) => new Map(config.rows.map((row) => [row.path, row.value])));
  const paths = [...new Set(configs.flatMap((config) => config.rows.map((row) => row.path)))].filter((path) => new Set(values.map((known) => known.get(path))).size > 1);
  return el("section", { class: "card", "data-panel": "differences" }, el("h2", {}, "Differences"), paths.length
    ? region("Differences of the configs", el("table", {}, header("setting", ...ids), el("tbody", {}, paths.map((path) => el("tr", {}, el("th", { scope: "row" }, path), values.map((known) => el("td", { class: "wrap" }, known.get(path) ?? "–")))))))
    : el("p", { class: "note" }, "The configs are equal."));
}

function report(run) {
  const base = `/api/runs/${encodeURIComponent(run.id)}`;
  const videos = run.videos.map((name) => el("figure", {}, el("video", { controls: true, preload: "metadata", src: `${base}/videos/${encodeURIComponent(name)}` }), el("figcaption", { class: "note" }, name)));
  return el("section", { class: "card", "data-panel": "report" }, el("h2", {}, `Report of ${run.id}`),
    run.report ? el("details", { open: true }, el("summary", {}, "the page of the run"), el("iframe", { src: `${base}/report`, sandbox: "allow-scripts", title: `report of ${run.id}` })) : el("p", { class: "note" }, "There is no report yet. Write it with ", el("code", { class: "command" }, `ludus report ${run.id}`)),
    videos.length ? videos : el("p", { class: "note" }, "There are no videos. Record one with ", el("code", { class: "command" }, `ludus play ${run.id} --video auto`)));
}
