// A map of the index on a canvas: drag and pinch to move, wheel and buttons to zoom, arrow keys to walk.

const HUE_STEP = 137.508; // the golden angle: neighbouring classes get far colours

export class IndexMap {
  constructor(box, points, onChoose, pictureOf) {
    this.canvas = box.querySelector("canvas");
    this.tooltip = box.querySelector(".tooltip");
    this.points = points;
    this.onChoose = onChoose;
    this.pictureOf = pictureOf;
    this.marked = { query: null, results: new Set() };
    this.selected = -1;
    this.pointers = new Map();
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.whole();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.dark.addEventListener("change", () => this.draw());
    this.listen(box);
  }

  whole() {
    this.zoom = 0.92;
    this.x = this.y = 0.5; // what is in the middle
    this.draw();
  }

  move(points) {
    const places = new Map(points.ids.map((id, place) => [id, place]));
    const id = this.points.ids[this.selected];
    this.points = points;
    this.selected = places.get(id) ?? -1;
    this.tooltip.hidden = this.selected < 0;
    this.draw();
  }

  mark(query, results) {
    this.marked = { query: query ?? null, results: new Set(results) };
    this.draw();
  }

  get side() {
    return Math.min(this.canvas.clientWidth, this.canvas.clientHeight) * this.zoom;
  }

  screen(place) {
    return [
      (this.points.x[place] - this.x) * this.side + this.canvas.clientWidth / 2,
      (this.y - this.points.y[place]) * this.side + this.canvas.clientHeight / 2,
    ];
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.paint();
    });
  }

  paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const room = Math.sqrt(1000 / Math.max(100, this.points.ids.length)); // fewer points are larger
    const size = Math.min(8, Math.max(1.8, 2.6 * room * Math.sqrt(this.zoom)));
    const light = this.dark.matches ? 68 : 42;
    const rings = [];
    this.points.ids.forEach((id, place) => {
      const [x, y] = this.screen(place);
      if (x < -9 || y < -9 || x > width + 9 || y > height + 9) return;
      const label = this.points.labels[place];
      pen.fillStyle = label < 0 ? "#8888" : `hsl(${(label * HUE_STEP) % 360} 62% ${light}% / .78)`;
      pen.beginPath();
      pen.arc(x, y, size, 0, 2 * Math.PI);
      pen.fill();
      if (id === this.marked.query || this.marked.results.has(id) || place === this.selected) rings.push([place, x, y]);
    });
    for (const [place, x, y] of rings) {
      const id = this.points.ids[place];
      pen.strokeStyle = this.dark.matches ? "#fff" : "#000";
      pen.lineWidth = id === this.marked.query || place === this.selected ? 3 : 1.5;
      pen.beginPath();
      pen.arc(x, y, size + (id === this.marked.query ? 6 : 3), 0, 2 * Math.PI);
      pen.stroke();
    }
    if (this.selected >= 0) this.showTooltip(...this.screen(this.selected));
  }

  nearest(x, y, reach) {
    let best = -1, smallest = reach * reach;
    for (let place = 0; place < this.points.ids.length; place++) {
      const [px, py] = this.screen(place);
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < smallest) [best, smallest] = [place, distance];
    }
    return best;
  }

  select(place) {
    if (place === this.selected) return;
    this.selected = place;
    this.tooltip.hidden = place < 0;
    if (place >= 0) {
      const label = this.points.classes[this.points.labels[place]];
      this.tooltip.querySelector("img").src = this.pictureOf(this.points.ids[place]);
      this.tooltip.querySelector("b").textContent = label ?? "no label";
      this.tooltip.querySelector("span").textContent = `image ${this.points.ids[place]}`;
    }
    this.draw();
  }

  showTooltip(x, y) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const box = this.tooltip;
    box.style.left = `${Math.max(4, Math.min(x + 14, width - box.offsetWidth - 4))}px`;
    box.style.top = `${Math.max(4, Math.min(y + 14, height - box.offsetHeight - 4))}px`;
  }

  zoomAt(x, y, factor) {
    const zoom = Math.min(60, Math.max(0.5, this.zoom * factor));
    const before = this.side;
    const dx = x - this.canvas.clientWidth / 2, dy = y - this.canvas.clientHeight / 2;
    this.zoom = zoom;
    this.x += dx / before - dx / this.side;
    this.y -= dy / before - dy / this.side;
    this.draw();
  }

  pan(dx, dy) {
    this.x -= dx / this.side;
    this.y += dy / this.side;
    this.draw();
  }

  walk(dx, dy) {
    if (this.selected < 0) return this.select(this.nearest(this.canvas.clientWidth / 2, this.canvas.clientHeight / 2, 1e9));
    const [x, y] = this.screen(this.selected);
    let best = -1, least = Infinity;
    for (let place = 0; place < this.points.ids.length; place++) {
      const [px, py] = this.screen(place);
      const along = (px - x) * dx + (py - y) * dy, aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
      if (place !== this.selected && along > 0.5 && aside <= along && along + 2 * aside < least) [best, least] = [place, along + 2 * aside];
    }
    if (best < 0) return;
    this.select(best);
    const [px, py] = this.screen(best);
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (px < 40 || py < 40 || px > width - 40 || py > height - 40) this.pan(width / 2 - px, height / 2 - py);
  }

  choose() {
    if (this.selected >= 0) this.onChoose(this.points.ids[this.selected]);
  }

  listen(box) {
    const { canvas, pointers } = this;
    const place = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomAt(...place(event), Math.exp(-event.deltaY * 0.0016));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      this.moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = place(event), last = pointers.get(event.pointerId);
      if (!last) return this.select(this.nearest(...now, 14));
      if (pointers.size === 2) {
        const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
        const apart = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]);
        this.zoomAt((now[0] + other[0]) / 2, (now[1] + other[1]) / 2, apart(now) / Math.max(1, apart(last)));
      } else this.pan(now[0] - last[0], now[1] - last[1]);
      this.moved += Math.hypot(now[0] - last[0], now[1] - last[1]);
      pointers.set(event.pointerId, now);
    });
    canvas.addEventListener("pointerup", (event) => {
      const touched = event.pointerType !== "mouse", alone = pointers.size === 1;
      pointers.delete(event.pointerId);
      if (!alone || this.moved > 6) return;
      const found = this.nearest(...place(event), 18);
      // A finger has no hover: the first tap shows the image, the second searches with it.
      if (found >= 0 && (!touched || found === this.selected)) { this.select(found); this.choose(); }
      else this.select(found);
    });
    canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => { if (!pointers.size && document.activeElement !== canvas) this.select(-1); });
    const middle = () => [canvas.clientWidth / 2, canvas.clientHeight / 2];
    canvas.addEventListener("keydown", (event) => {
      const actions = {
        ArrowLeft: () => this.walk(-1, 0), ArrowRight: () => this.walk(1, 0),
        ArrowUp: () => this.walk(0, -1), ArrowDown: () => this.walk(0, 1),
        "+": () => this.zoomAt(...middle(), 1.4), "-": () => this.zoomAt(...middle(), 1 / 1.4),
        0: () => this.whole(), Enter: () => this.choose(), Escape: () => this.select(-1),
      };
      if (!actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    });
    box.querySelector("#closer").addEventListener("click", () => this.zoomAt(...middle(), 1.6));
    box.querySelector("#farther").addEventListener("click", () => this.zoomAt(...middle(), 1 / 1.6));
    box.querySelector("#whole").addEventListener("click", () => this.whole());
  }
}
