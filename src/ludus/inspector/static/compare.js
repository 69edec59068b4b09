// Two checkpoints on the same seed, in step with each other; where they first act differently is marked.

import { episodeOf, get } from "./api.js";
import { el, empty, fill } from "./dom.js";
import { address, go } from "./main.js";
import { Panels, headline } from "./panels.js";
import { Player } from "./player.js";
import { chooser, wishOf } from "./episode.js";

// The first step at which two episodes act differently; null if they never do as far as both go.
export function parting(one, other) {
  const steps = Math.min(one.steps, other.steps);
  for (let t = 0; t < steps; t += 1) {
    const [a, b] = [one.row("action", t), other.row("action", t)];
    if (a.length !== b.length || a.some((x, i) => Math.abs(x - b[i]) > 1e-6 * Math.max(1, Math.abs(x)))) return t;
  }
  return one.steps === other.steps ? null : steps;
}

export async function comparePage(place, params, going) {
  const { runs } = await get("runs");
  const ids = params.getAll("run");
  if (!runs.length) {
    fill(place, el("h1", {}, "Compare"), empty("There are no runs to compare. Train some:", "ludus train CartPole-v1:ppo --seed 1,2"));
    return null;
  }
  const saved = params.getAll("checkpoint");
  const base = wishOf(params, ids[0] ?? runs[0].id);
  const wishes = [{ ...base, checkpoint: saved[0] ?? "last" }, { ...base, run: ids[1] ?? ids[0] ?? runs[0].id, checkpoint: saved[1] ?? (ids[1] ? "last" : "best") }];
  const stage = el("div", {});
  const status = el("p", { class: "note", role: "status" });
  let [player, panels] = [null, []];
  const close = () => {
    player?.close();
    for (const panel of panels) panel.close();
    [player, panels] = [null, []];
  };

  async function play() {
    const first = forms[0].read();
    const asked = [first, { ...forms[1].read(), seed: first.seed, mode: first.mode, steps: first.steps }];
    close();
    fill(stage);
    fill(status, "Playing both …");
    try {
      const episodes = [];
      for (const wish of asked) episodes.push(await episodeOf(wish, (job) => { status.textContent = `Playing ${wish.run} ${wish.checkpoint} … ${job.progress}`; }, going));
      if (!going() || episodes.includes(null)) return;
      show(episodes, asked);
    } catch (error) {
      if (going()) fill(status, el("span", { class: "error" }, error.message));
    }
  }

  function show(episodes, asked) {
    const apart = parting(...episodes);
    status.textContent = apart === null ? "They act alike all the way." : `They first act differently at step ${apart}.`;
    status.dataset.apart = apart === null ? "" : String(apart);
    const jumps = apart === null ? {} : { "First difference": () => apart };
    player = new Player(Math.max(...episodes.map((one) => one.steps)), episodes[0].meta.fps, { jumps, at: Number(params.get("t") ?? 0) || 0 });
    panels = episodes.map((episode) => new Panels(episode, { go: (t) => player.go(t), brief: true }));
    const marks = episodes.map(() => el("p", { class: "error" }));
    fill(stage, el("section", { class: "card" }, player.root), el("div", { class: "pair" }, panels.map((panel, i) => el("div", { "data-side": i },
      el("p", { class: "note" }, headline(episodes[i].meta)), marks[i], el("section", { class: "card" }, panel.frame), panel.decision, panel.plots))));
    player.listen((t) => {
      panels.forEach((panel, i) => panel.show(Math.min(t, episodes[i].steps)));
      for (const mark of marks) mark.textContent = apart !== null && t === apart ? "Here they act differently for the first time." : " ";
    });
    player.go(player.t);
    go(address("compare", { run: asked.map((one) => one.run), checkpoint: asked.map((one) => one.checkpoint), episode: asked[0].seed, mode: asked[0].mode }), true);
  }

  const forms = [await chooser(runs, wishes[0], () => play()), await chooser(runs, wishes[1], () => play())];
  if (!going()) return null;
  for (const extra of forms[1].root.querySelectorAll("label, select[aria-label='Actions']")) extra.hidden = true;
  fill(place, el("h1", {}, "Compare"), el("p", { class: "note" }, "Both play the same seed; the first line says which."), forms[0].root, forms[1].root, status, stage);
  if (ids.length) play();
  else fill(stage, empty("Choose two checkpoints, of one run or of two, and play them side by side."));
  return { close };
}
