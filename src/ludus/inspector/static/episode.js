// The heart: one episode of one checkpoint, step by step.

import { episodeOf, finished, get, post } from "./api.js";
import { el, empty, fill, number } from "./dom.js";
import { address, go } from "./main.js";
import { Panels, headline, jumps } from "./panels.js";
import { Player } from "./player.js";
import { drawDream, drawInside } from "./inside.js";

export const MODES = { evaluation: "as it evaluates", greedy: "greedy", sampled: "sampled" };

// A form that says which episode; read() gives the wish.
export async function chooser(runs, wish, onplay) {
  const run = el("select", { "aria-label": "Run" }, runs.map((one) => el("option", { value: one.id, selected: one.id === wish.run }, one.id)));
  const saved = el("select", { "aria-label": "Checkpoint" });
  const seed = el("input", { type: "number", min: 0, step: 1, value: wish.seed, "aria-label": "Seed of the episode" });
  const mode = el("select", { "aria-label": "Actions" }, Object.entries(MODES).map(([key, title]) => el("option", { value: key, selected: key === wish.mode }, title)));
  const steps = el("input", { type: "number", min: 1, max: 100000, step: 1, value: wish.steps, "aria-label": "Most steps" });
  const load = async (wanted) => {
    const { checkpoints } = await get(`runs/${encodeURIComponent(run.value)}`);
    const best = checkpoints.find((one) => one.marks.includes("best"))?.name ?? checkpoints.at(-1)?.name;
    const chosen = ["best", "last", "", undefined, null].includes(wanted) ? (wanted === "last" ? checkpoints.at(-1)?.name : best) : wanted;
    fill(saved, checkpoints.map((one) => el("option", { value: one.name, selected: one.name === chosen },
      `${one.name}${one.mean === null ? "" : ` (${number(one.mean)})`}${one.marks.length ? ` ${one.marks.join(", ")}` : ""}`)));
    return checkpoints.length;
  };
  run.addEventListener("change", () => load());
  const count = await load(wish.checkpoint);
  const root = el("form", { class: "bar" }, run, saved, el("label", {}, "seed", seed), mode, el("label", {}, "most steps", steps), el("button", { class: "main" }, "Play"));
  root.addEventListener("submit", (event) => {
    event.preventDefault();
    onplay();
  });
  return { root, count, read: () => ({ run: run.value, checkpoint: saved.value, seed: Number(seed.value), mode: mode.value, steps: Number(steps.value) }) };
}

export function wishOf(params, run) {
  return { run, checkpoint: params.get("checkpoint") ?? "", seed: Number(params.get("episode") ?? 0) || 0, mode: params.get("mode") in MODES ? params.get("mode") : "evaluation", steps: Number(params.get("steps") ?? 1000) || 1000 };
}

export async function episodePage(place, params, going) {
  const { runs } = await get("runs");
  if (!runs.length) {
    fill(place, el("h1", {}, "Episode"), empty("There is no run whose episodes could be shown. Train one:", "ludus train CartPole-v1:ppo"));
    return null;
  }
  const wish = wishOf(params, params.get("run") ?? runs[0].id);
  const stage = el("div", {});
  const status = el("p", { class: "note", role: "status" });
  let [player, panels] = [null, null];
  const close = () => {
    player?.close();
    panels?.close();
    [player, panels] = [null, null];
  };

  async function play(at = 0) {
    const asked = form.read();
    close();
    fill(stage);
    if (!asked.checkpoint) {
      fill(stage, empty("This run has no checkpoint yet. It gets one while it trains."));
      return;
    }
    const bar = el("progress", { max: asked.steps, value: 0, "aria-label": "Steps played" });
    fill(status, "Playing … ", bar);
    try {
      const episode = await episodeOf(asked, (job) => { bar.value = job.progress; }, going);
      if (!episode || !going()) return;
      status.textContent = headline(episode.meta);
      show(episode, asked, at);
    } catch (error) {
      if (going()) fill(status, el("span", { class: "error" }, error.message));
    }
  }

  function show(episode, asked, at) {
    player = new Player(episode.steps, episode.meta.fps, { jumps: jumps(episode), at });
    panels = new Panels(episode, { go: (t) => player.go(t) });
    let timer = 0;
    const look = el("div", {});
    const dreamed = el("div", {});
    const order = (what, target, drawn) => async () => {
      const t = Math.min(player.t, episode.steps - 1);
      fill(target, el("p", { class: "note", role: "status" }, "Looking …"));
      try {
        const job = await finished(await post("looks", { episode: episode.id, what, t }), () => {}, going);
        if (job) fill(target, drawn(await get(`jobs/${job.id}/${what}-${t}.json`), episode));
      } catch (error) {
        fill(target, el("p", { class: "error" }, error.message));
      }
    };
    fill(stage,
      el("div", { class: "episode" },
        el("div", {}, el("section", { class: "card" }, el("h2", { class: "visually-hidden" }, "Picture"), panels.frame, player.root), panels.attention),
        el("div", {}, panels.decision, panels.observation)),
      panels.plots, panels.table,
      episode.meta.world ? el("section", { class: "card", "data-panel": "dream" }, el("div", { class: "bar" }, el("h2", { class: "grow" }, "What the world model thinks"), el("button", { type: "button", onclick: order("dream", dreamed, drawDream) }, "Imagine from this step")), dreamed) : null,
      el("section", { class: "card", "data-panel": "inside" }, el("div", { class: "bar" }, el("h2", { class: "grow" }, "See inside"), el("button", { type: "button", onclick: order("inside", look, drawInside) }, "Look inside at this step")),
        el("p", { class: "note" }, "What the decision at this step depends on, filters and activations of convolutions, and units that never change."), look),
      el("p", { class: "note" }, `Keys: space plays, arrows step, home and end jump, page up and down go ten steps, B best, W worst, N next reward. Discount ${number(episode.meta.gamma)}${episode.meta.lambda === null ? "" : `, lambda ${number(episode.meta.lambda)}`}; values and returns to go are in the unit of learning.`));
    player.listen((t) => panels.show(t));
    player.listen((t) => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (going()) go(address("episode", { run: asked.run, checkpoint: asked.checkpoint, episode: asked.seed, mode: asked.mode === "evaluation" ? "" : asked.mode, steps: asked.steps === 1000 ? "" : asked.steps, t }), true);
      }, 200);
    });
    player.go(at);
  }

  const form = await chooser(runs, wish, () => play());
  if (!going()) return null;
  fill(place, el("h1", {}, "Episode"), form.root, status, stage);
  if (!form.count) fill(stage, empty("This run has no checkpoint yet. It gets one while it trains."));
  else if (params.has("episode") || params.has("checkpoint")) play(Number(params.get("t") ?? 0) || 0);
  else fill(stage, empty("Choose a checkpoint and a seed, then play. The same choice always shows the same episode."));
  return { close };
}
