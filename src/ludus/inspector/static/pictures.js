// Pictures of a pack: fetched in blocks, decoded ahead of time, the oldest forgotten when they take too much memory.

const BLOCK = 1 << 20;
const MOST_BYTES = 256 << 20;
const AHEAD = 12;

export class Pictures {
  // index: where each picture begins, and last where the pack ends; load(begin, end) -> Promise<ArrayBuffer>
  constructor(index, load) {
    this.index = index;
    this.load = load;
    this.count = index.length - 1;
    this.blocks = new Map();
    this.bitmaps = new Map();
    this.waiting = new Map();
    this.bytes = 0;
  }

  ready(i) {
    return this.bitmaps.get(i) ?? null;
  }

  want(i) {
    const known = this.bitmaps.get(i);
    if (known) {
      this.bitmaps.delete(i);
      this.bitmaps.set(i, known);
      return Promise.resolve(known);
    }
    if (!this.waiting.has(i)) this.waiting.set(i, this.decode(i).finally(() => this.waiting.delete(i)));
    return this.waiting.get(i);
  }

  prefetch(i, direction = 1) {
    for (let k = 1; k <= AHEAD; k += 1) {
      const next = i + k * direction;
      if (next >= 0 && next < this.count && !this.bitmaps.has(next)) this.want(next).catch(() => {});
    }
  }

  async decode(i) {
    const [begin, end] = [this.index[i], this.index[i + 1]];
    const first = Math.floor(begin / BLOCK);
    const last = Math.floor((end - 1) / BLOCK);
    const parts = [];
    for (let block = first; block <= last; block += 1) {
      const data = await this.block(block);
      const from = Math.max(begin - block * BLOCK, 0);
      parts.push(data.slice(from, Math.min(end - block * BLOCK, BLOCK)));
    }
    const bitmap = await createImageBitmap(new Blob(parts, { type: "image/png" }));
    this.bitmaps.set(i, bitmap);
    this.bytes += bitmap.width * bitmap.height * 4;
    while (this.bytes > MOST_BYTES && this.bitmaps.size > 2) {
      const [oldest, gone] = this.bitmaps.entries().next().value;
      this.bitmaps.delete(oldest);
      this.bytes -= gone.width * gone.height * 4;
      gone.close();
    }
    return bitmap;
  }

  block(number) {
    if (!this.blocks.has(number)) {
      const end = Math.min((number + 1) * BLOCK, this.index[this.count]);
      const loading = this.load(number * BLOCK, end);
      loading.catch(() => this.blocks.delete(number));
      this.blocks.set(number, loading);
      if (this.blocks.size > 64) this.blocks.delete(this.blocks.keys().next().value);
    }
    return this.blocks.get(number);
  }
}

// Draws the newest wanted picture on a canvas; a picture that comes too late is dropped.
export class Screen {
  constructor(canvas, pictures) {
    this.canvas = canvas;
    this.pictures = pictures;
    this.context = canvas.getContext("2d");
    this.wanted = -1;
  }

  show(i) {
    const direction = i >= this.wanted ? 1 : -1;
    this.wanted = i;
    const known = this.pictures.ready(i);
    if (known) this.draw(known, i);
    else {
      this.pictures.want(i).then((bitmap) => {
        if (this.wanted === i) this.draw(bitmap, i);
      }, () => { this.canvas.dataset.missing = "1"; });
    }
    this.pictures.prefetch(i, direction);
  }

  draw(bitmap, i) {
    if (this.canvas.width !== bitmap.width || this.canvas.height !== bitmap.height) {
      this.canvas.width = bitmap.width;
      this.canvas.height = bitmap.height;
      const small = Math.max(1, Math.round(320 / bitmap.width));
      const place = this.canvas.parentElement ?? this.canvas;
      place.style.width = `min(100%, ${bitmap.width * small}px)`;
    }
    this.context.drawImage(bitmap, 0, 0);
    this.canvas.dataset.shown = String(i);
  }
}
