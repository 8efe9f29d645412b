// The map of the embedding: the slider moves the points from problem to problem; pointer, finger and arrow keys show the
// image behind a point. Without it the page still shows the last problem.
"use strict";

const REACH = 24; // pixels between the pointer and a point that it still finds
const KINDS = { converged: "proxy, converged", selected: "proxy, chosen for the next problem" };

function makeMap(figure) {
  const data = JSON.parse(figure.querySelector(".map-data").textContent);
  const view = figure.querySelector(".map-view");
  const ring = view.querySelector(".ring");
  const tooltip = view.querySelector(".tooltip");
  const slider = figure.querySelector("input[type=range]");
  const play = figure.querySelector(".play");
  const layers = new Map([...view.querySelectorAll("svg > .layer")].map((layer) => [layer.classList[1], layer]));
  const marks = [];
  let frame = data.frames.length - 1;
  let current = null;
  let picked = null;
  let timer = null;

  for (const [kind, layer] of layers) {
    [...layer.querySelectorAll("circle, rect")].forEach((element, index) => {
      const classId = element.parentNode.dataset.class;
      marks.push({ kind, index, element, classId, side: classId.split("-")[0], label: Number(classId.split("-")[1]) });
    });
  }

  function place(mark) {
    const places = data.frames[frame].places[mark.kind];
    return places && [places[2 * mark.index], places[2 * mark.index + 1]];
  }

  function isVisible(mark) {
    return !layers.get(mark.kind).classList.contains("off") && place(mark) && (!picked || picked === mark.classId);
  }

  function draw() {
    for (const mark of marks) {
      const at = place(mark);
      mark.element.classList.toggle("off", !at);
      if (at) mark.element.style.transform = `translate(${at[0]}px, ${at[1]}px)`;
    }
    const { problem, map_at_r: score, covering_radius: radius } = data.frames[frame];
    const texts = [`problem ${problem} of ${data.frames[data.frames.length - 1].problem}`];
    if (typeof score === "number") texts.push(`validation MAP@R ${(100 * score).toFixed(1)} %`);
    if (typeof radius === "number") texts.push(`covering radius ${radius.toFixed(3)}`);
    figure.querySelector(".map-state").textContent = texts.join(" · ");
    if (slider) slider.setAttribute("aria-valuetext", `problem ${problem}`);
    if (current && !isVisible(current)) hide();
    if (current) point(current);
  }

  function element(tag, className, text) {
    const made = document.createElement(tag);
    made.className = className;
    made.textContent = text;
    return made;
  }

  function face(side, index) {
    const { sheet, cells } = data.sides[side];
    if (!sheet || cells[index] === null) return null;
    const picture = element("div", "map-face", "");
    const column = cells[index] % sheet.columns;
    const row = Math.floor(cells[index] / sheet.columns);
    const percent = (at, count) => (count > 1 ? (100 * at) / (count - 1) : 0);
    picture.style.backgroundImage = `url(${JSON.parse(document.getElementById(sheet.id).textContent)})`;
    picture.style.backgroundSize = `${100 * sheet.columns}% ${100 * sheet.rows}%`;
    picture.style.backgroundPosition = `${percent(column, sheet.columns)}% ${percent(row, sheet.rows)}%`;
    return picture;
  }

  // Rings the mark and puts the tooltip beside it, on the side where there is room.
  function point(mark) {
    const [x, y] = place(mark);
    ring.style.transform = `translate(${x}px, ${y}px)`;
    ring.classList.remove("off");
    tooltip.style.left = `${x / 10}%`;
    tooltip.style.top = `${y / 10}%`;
    tooltip.classList.toggle("to-the-left", x > 500);
    tooltip.classList.toggle("above", y > 500);
  }

  function show(mark) {
    if (mark !== current) {
      const side = data.sides[mark.side];
      const isImage = mark.kind === mark.side;
      const parts = [element("b", "", side.classes[mark.label])];
      const picture = isImage && face(mark.side, mark.index);
      if (picture) parts.unshift(picture);
      parts.push(element("div", "tooltip-x", isImage ? side.names[mark.index] : KINDS[mark.kind]));
      tooltip.replaceChildren(...parts);
      current = mark;
    }
    view.classList.add("reading");
    point(mark);
  }

  function hide() {
    current = null;
    view.classList.remove("reading");
    ring.classList.add("off");
  }

  function follow(event) {
    const box = view.querySelector("svg").getBoundingClientRect();
    const scale = box.width / 1000;
    let found = null;
    let nearest = REACH;
    for (const mark of marks.filter(isVisible)) {
      const [x, y] = place(mark);
      const gap = Math.hypot(box.left + x * scale - event.clientX, box.top + y * scale - event.clientY);
      if (gap < nearest) [found, nearest] = [mark, gap];
    }
    if (found) show(found);
    else hide();
  }

  // The nearest mark that lies more in the direction of the key than aside from it.
  function step(dx, dy) {
    const visible = marks.filter(isVisible);
    if (!current) return visible.length && show(visible[0]);
    const [x0, y0] = place(current);
    let found = null;
    let nearest = Infinity;
    for (const mark of visible) {
      const [x, y] = place(mark);
      const along = (x - x0) * dx + (y - y0) * dy;
      const aside = Math.abs((x - x0) * dy) + Math.abs((y - y0) * dx);
      if (along > 0 && along >= aside && along + aside < nearest) [found, nearest] = [mark, along + aside];
    }
    return found && show(found);
  }

  function pick(classId) {
    picked = picked === classId ? null : classId;
    if (picked) showLayer(picked.split("-")[0], true);
    view.classList.toggle("picking", picked !== null);
    for (const part of figure.querySelectorAll("[data-class]")) {
      part.classList.toggle("picked", part.dataset.class === picked);
      if (part.tagName === "BUTTON") part.setAttribute("aria-pressed", String(part.dataset.class === picked));
    }
    if (current && !isVisible(current)) hide();
  }

  function showLayer(kind, isShown) {
    layers.get(kind).classList.toggle("off", !isShown);
    figure.querySelector(`[data-layer=${kind}]`).checked = isShown;
    if (current && !isVisible(current)) hide();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  function go(to) {
    frame = to;
    slider.value = String(to + 1);
    draw();
  }

  if (slider) {
    slider.addEventListener("input", () => {
      stop();
      go(Number(slider.value) - 1);
    });
    play.addEventListener("click", () => {
      if (timer) return stop();
      play.textContent = "Pause";
      go(frame === data.frames.length - 1 ? 0 : frame + 1);
      timer = setInterval(() => (frame === data.frames.length - 1 ? stop() : go(frame + 1)), 900);
    });
  }
  for (const box of figure.querySelectorAll("[data-layer]")) {
    box.addEventListener("change", () => showLayer(box.dataset.layer, box.checked));
  }
  for (const button of figure.querySelectorAll("button[data-class]")) {
    button.addEventListener("click", () => pick(button.dataset.class));
  }
  view.addEventListener("pointermove", follow);
  view.addEventListener("pointerdown", follow);
  view.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
  view.addEventListener("blur", hide);
  view.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Escape") hide();
    if (!(event.key in steps)) return;
    event.preventDefault();
    step(...steps[event.key]);
  });
  figure.classList.add("live");
  draw();
}

document.querySelectorAll("figure.map").forEach(makeMap);
