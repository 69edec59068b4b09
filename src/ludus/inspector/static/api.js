// Requests to the server that sent this page, and to no other.

import { Episode } from "./source.js";

export async function get(path, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) for (const one of [value].flat()) query.append(key, one);
  return read(await fetch(`/api/${path}${query.size ? `?${query}` : ""}`));
}

export async function post(path, body) {
  return read(await fetch(`/api/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
}

async function read(response) {
  const found = await response.json().catch(() => ({ error: `the server answers ${response.status}` }));
  if (!response.ok) throw new Error(found.error ?? `the server answers ${response.status}`);
  return found;
}

// Waits for an order; tell(job) is called meanwhile. `going()` false gives it up.
export async function finished(job, tell = () => {}, going = () => true) {
  let pause = 60;
  while (job.state === "waiting" || job.state === "working") {
    tell(job);
    await new Promise((done) => setTimeout(done, pause));
    if (!going()) return null;
    pause = Math.min(pause * 1.3, 500);
    job = await get(`jobs/${job.id}`);
  }
  if (job.state === "failed") throw new Error(job.error);
  return job;
}

// The episode of a wish: played if it is not recorded yet.
export async function episodeOf(wish, tell, going = () => true) {
  const job = await finished(await post("episodes", wish), tell, going);
  if (job === null) return null;
  const [meta, arrays] = await Promise.all([
    get(`jobs/${job.id}/episode.json`),
    fetch(`/api/jobs/${job.id}/arrays.bin`).then((response) => response.arrayBuffer()),
  ]);
  const load = async (name, begin, end) => {
    const response = await fetch(`/api/jobs/${job.id}/${name}`, { headers: { Range: `bytes=${begin}-${end - 1}` } });
    if (response.status !== 206 && response.status !== 200) throw new Error(`the server answers ${response.status}`);
    return response.arrayBuffer();
  };
  return new Episode(meta, arrays, load, job.id);
}

export function listen(runs, handlers) {
  const query = new URLSearchParams(runs.map((run) => ["run", run]));
  const source = new EventSource(`/api/events?${query}`);
  for (const [kind, handler] of Object.entries(handlers)) source.addEventListener(kind, (event) => handler(JSON.parse(event.data)));
  return source;
}
