// The page of one episode that needs no server: everything is in the file.

import { el, fill } from "./dom.js";
import { Panels, headline, jumps } from "./panels.js";
import { Player } from "./player.js";
import { Episode } from "./source.js";

function bytes(text) {
  const found = atob(text);
  const made = new Uint8Array(found.length);
  for (let i = 0; i < found.length; i += 1) made[i] = found.charCodeAt(i);
  return made.buffer;
}

const packed = JSON.parse(document.getElementById("episode").textContent);
const files = Object.fromEntries(Object.entries(packed.files).map(([name, text]) => [name, bytes(text)]));
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
const episode = new Episode(packed.meta, files["arrays.bin"], async (name, begin, end) => files[name].slice(begin, end));
const player = new Player(episode.steps, episode.meta.fps, { jumps: jumps(episode) });
const panels = new Panels(episode, { go: (t) => player.go(t) });
document.title = `${packed.meta.environment} · ${packed.meta.algorithm} · Ludus`;
fill(document.getElementById("main"), el("h1", {}, `${packed.meta.environment} by ${packed.meta.algorithm}`), el("p", { class: "note" }, headline(packed.meta)),
  el("div", { class: "episode" }, el("div", {}, el("section", { class: "card" }, panels.frame, player.root), panels.attention), el("div", {}, panels.decision, panels.observation)), panels.plots, panels.table);
player.listen((t) => panels.show(t));
player.go(Number(new URLSearchParams(location.search).get("t") ?? 0) || 0);
