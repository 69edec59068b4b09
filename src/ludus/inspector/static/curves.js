// Metrics of one or several runs over steps, updates or time, growing while a run trains.

import { get, listen } from "./api.js";
import { Chart, LINES } from "./chart.js";
import { colour, csv, download, el, empty, fill, number, swatch } from "./dom.js";
import { address, go } from "./main.js";

const DEFAULT = ["val/roll/ep_rew/mean", "train/roll/ep_rew/mean"];
const AXES = { env_steps: "environment steps", updates: "updates", seconds: "seconds" };

export async function curvesPage(place, params, going) {
  const ids = params.getAll("run");
  if (!ids.length) {
    fill(place, el("h1", {}, "Curves"), empty("No run is selected. Choose some in the list of runs."), el("p", { class: "empty" }, el("a", { href: address("runs", {}) }, "Runs")));
    return null;
  }
  const runs = await Promise.all(ids.map((id) => get(`runs/${encodeURIComponent(id)}`)));
  if (!going()) return null;
  const known = [...new Set(runs.flatMap((run) => run.metrics))].sort();
  const first = DEFAULT.filter((name) => known.includes(name));
  const view = {
    metrics: params.getAll("metric").filter((name) => known.includes(name)), axis: params.get("axis") in AXES ? params.get("axis") : "env_steps",
    smooth: Number(params.get("smooth") ?? 0), log: params.has("log"), band: params.has("band"),
  };
  if (!view.metrics.length) view.metrics = first.length ? first : known.slice(0, 2);
  let charts = [];
  let data = new Map();
  const board = el("div", {});
  const note = el("p", { class: "note", role: "status" }, "Click a point of a curve to open the checkpoint nearest to it.");

  function remember() {
    go(address("curves", { run: ids, metric: view.metrics, axis: view.axis, smooth: view.smooth || "", log: view.log ? 1 : "", band: view.band ? 1 : "" }), true);
  }

  async function load(only = null) {
    remember();
    const wanted = view.metrics.flatMap((metric) => (view.band ? [[metric, null]] : ids.map((id) => [metric, id])));
    await Promise.all(wanted.filter(([, id]) => only === null || id === null || id === only).map(async ([metric, id]) => {
      data.set(`${metric} ${id}`, id === null ? await get("band", { run: ids, metric, axis: view.axis }) : await get("curve", { run: id, metric, axis: view.axis }));
    }));
    if (going()) draw();
  }

  function linesOf(metric) {
    const tables = [];
    const lines = [];
    if (view.band) {
      (data.get(`${metric} null`) ?? []).forEach((group, i) => {
        tables.push([group.x, group.y, group.low, group.high]);
        const stroke = LINES[i % LINES.length];
        lines.push({ label: `${group.label} (${group.runs.length} seeds)`, colour: stroke, width: 2 }, { colour: stroke, width: 0.5 }, { colour: stroke, width: 0.5 });
      });
    } else {
      for (const id of ids) {
        const curve = data.get(`${metric} ${id}`) ?? { x: [], y: [] };
        tables.push(view.smooth ? [curve.x, smooth(curve.y, view.smooth)] : [curve.x, curve.y]);
        lines.push({ label: id, colour: colour(id), width: 1.8 });
      }
    }
    const filled = tables.filter(([x]) => x.length);
    const kept = lines.filter((_, i) => tables[view.band ? Math.floor(i / 3) : i][0].length);
    if (!filled.length) return null;
    const [x, ...columns] = filled.length === 1 ? filled[0] : uPlot.join(filled);
    kept.forEach((line, i) => { line.values = view.log ? columns[i].map((y) => (y > 0 ? y : y === undefined ? y : null)) : columns[i]; });
    return { x, lines: kept };
  }

  function draw() {
    for (const chart of charts) chart.close();
    charts = [];
    fill(board, view.metrics.map((metric) => {
      const found = linesOf(metric);
      const remove = el("button", { type: "button", "aria-label": `Remove ${metric}`, onclick: () => { view.metrics = view.metrics.filter((name) => name !== metric); load(); } }, "Remove");
      const save = el("button", { type: "button", "aria-label": `Export CSV of ${metric}`, onclick: () => exportShown(metric) }, "Export CSV");
      if (!found) return el("section", { class: "card", "data-metric": metric }, el("div", { class: "bar" }, el("h2", { class: "grow" }, metric), remove), el("p", { class: "note" }, "These runs have no point of it yet."));
      const bands = view.band ? found.lines.map((line, i) => (i % 3 === 0 ? { series: [i + 3, i + 2], fill: tint(line.colour) } : null)).filter(Boolean) : [];
      const chart = new Chart(metric, found.x, found.lines, { height: 260, log: view.log, bands, xlabel: AXES[view.axis], onpick: (x, i) => picked(x, i, found, chart) });
      charts.push(chart);
      return el("section", { class: "card", "data-metric": metric, "data-points": found.x.length }, el("div", { class: "bar" }, el("span", { class: "grow" }), save, remove), chart.root);
    }));
  }

  // The run whose curve is nearest to the pointer, and its checkpoint nearest to that position.
  function picked(x, i, found, chart) {
    const y = chart.plot.posToVal(chart.plot.cursor.top, "y");
    const near = found.lines.filter((line) => line.label && line.values[i] !== null && line.values[i] !== undefined).sort((a, b) => Math.abs(a.values[i] - y) - Math.abs(b.values[i] - y))[0];
    const run = runs.find((one) => one.id === near?.label) ?? runs[0];
    open(run, x);
  }

  async function open(run, x) {
    let at = x;
    if (view.axis === "seconds" || (view.axis === "updates" && run.checkpoints[0]?.name.startsWith("step="))) {
      const metric = view.metrics.find((name) => run.metrics.includes(name));
      const [over, steps] = await Promise.all([get("curve", { run: run.id, metric, axis: view.axis }), get("curve", { run: run.id, metric, axis: "env_steps" })]);
      const share = over.x.findIndex((value) => value >= x);
      at = steps.x[Math.round(((share < 0 ? over.x.length - 1 : share) / Math.max(over.x.length - 1, 1)) * (steps.x.length - 1))] ?? x;
    }
    const saved = [...run.checkpoints].sort((a, b) => Math.abs(a.step - at) - Math.abs(b.step - at))[0];
    if (!saved) fill(note, `${run.id} has no checkpoint.`);
    else fill(note, swatch(run.id), `${run.id} at ${number(x)} ${AXES[view.axis]}: `, el("a", { class: "checkpoint", href: address("episode", { run: run.id, checkpoint: saved.name, episode: 0 }) }, `episodes of ${saved.name}`), saved.mean === null ? "" : `, evaluated ${number(saved.mean)}`);
  }

  function exportShown(metric) {
    const { x, lines } = linesOf(metric);
    const head = [view.axis, ...lines.map((line, i) => line.label ?? (i % 3 === 1 ? "low" : "high"))];
    download(`${metric.replaceAll("/", "-")}.csv`, csv([head, ...x.map((value, i) => [value, ...lines.map((line) => line.values[i])])]), "text/csv");
  }

  const change = (act) => (event) => { act(event.target); load(); };
  const pick = el("select", { "aria-label": "Metric" }, known.map((name) => el("option", { value: name }, name)));
  const axis = el("select", { "aria-label": "Axis", onchange: change((t) => { view.axis = t.value; }) }, Object.entries(AXES).map(([key, title]) => el("option", { value: key, selected: key === view.axis }, title)));
  const smoothing = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: view.smooth, "aria-label": "Smoothing", onchange: change((t) => { view.smooth = Number(t.value); }) });
  const check = (title, key) => {
    const box = el("input", { type: "checkbox", onchange: change((t) => { view[key] = t.checked; }) });
    box.checked = view[key];
    return el("label", {}, box, title);
  };
  const states = el("p", { class: "note" });
  const drawStates = () => fill(states, runs.map((run) => el("span", { "data-state": run.id }, swatch(run.id), run.id, " ", el("span", { class: `state-${run.state}` }, run.state === "lost" ? "killed" : run.state),
    run.state === "lost" ? [", resume with ", el("code", { class: "command" }, run.resume)] : null, " ")));
  drawStates();
  fill(place, el("h1", {}, ids.length === 1 ? ids[0] : `Curves of ${ids.length} runs`), states,
    el("div", { class: "bar" }, pick, el("button", { type: "button", onclick: () => { if (!view.metrics.includes(pick.value)) view.metrics.unshift(pick.value); load(); } }, "Add chart"), axis,
      el("label", {}, "Smoothing", smoothing), check("Logarithmic", "log"), check("Seeds as a band", "band"),
      el("a", { href: address("episode", { run: ids[0], episode: 0 }) }, "Episodes"), el("a", { href: address("config", { run: ids }) }, "Config and report")), note, board);
  if (!known.length) fill(board, empty("This run has no metrics yet. They appear here as soon as there are some."));
  else await load();
  let due = false;
  const source = listen(ids, {
    rows: ({ run }) => {
      if (due || view.band) return;
      due = true;
      setTimeout(() => { due = false; if (going()) load(run); }, 300);
    },
    changed: async ({ runs: changed }) => {
      for (const [i, run] of runs.entries()) if (changed.includes(run.id)) runs[i] = await get(`runs/${encodeURIComponent(run.id)}`);
      if (going()) drawStates();
    },
  });
  return { close: () => { source.close(); for (const chart of charts) chart.close(); } };
}

function tint(line) {
  return line.startsWith("#") ? `${line}33` : line.replace(")", " / 0.2)");
}

// Exponential mean without the pull of its beginning; gaps stay gaps.
export function smooth(values, weight) {
  let [mean, mass] = [0, 0];
  return values.map((y) => {
    if (y === null || y === undefined) return y;
    mean = mean * weight + y * (1 - weight);
    mass = mass * weight + (1 - weight);
    return mean / mass;
  });
}
