// Reads a chart's values under the pointer or by arrow keys. Everything it shows stands in the table below the chart,
// so the page is complete without it.
"use strict";

function makeReadable(figure) {
  const plot = figure.querySelector(".plot");
  const headings = [...figure.querySelectorAll("thead th")];
  const rows = [...figure.querySelectorAll("tbody tr")];
  const lefts = rows.map((row) => Number(row.dataset.left));
  const guide = plot.appendChild(document.createElement("div"));
  const tooltip = plot.appendChild(document.createElement("div"));
  guide.className = "guide";
  tooltip.className = "tooltip";
  tooltip.setAttribute("role", "status");
  let current = -1;

  function line(className, text, style) {
    const element = document.createElement("div");
    element.className = className;
    if (style) element.appendChild(document.createElement("span")).className = `swatch ${style}`;
    element.append(text);
    return element;
  }

  function show(index) {
    if (index === current) return;
    current = index;
    const [x, ...cells] = rows[index].children;
    const parts = [line("tooltip-x", `${headings[0].textContent} ${x.textContent}`)];
    guide.replaceChildren();
    cells.forEach((cell, series) => {
      if (!cell.dataset.bottom) return;
      const { style } = headings[series + 1].dataset;
      parts.push(line("", `${headings[series + 1].textContent} ${cell.textContent}`, style));
      const dot = guide.appendChild(document.createElement("span"));
      dot.className = `dot ${style}`;
      dot.style.bottom = `${cell.dataset.bottom}%`;
    });
    tooltip.replaceChildren(...parts);
    guide.style.left = `${lefts[index]}%`;
    tooltip.classList.toggle("to-the-left", lefts[index] > 50);
    tooltip.style.left = `${lefts[index]}%`;
    plot.classList.add("reading");
  }

  function hide() {
    current = -1;
    plot.classList.remove("reading");
  }

  function follow(event) {
    const box = plot.getBoundingClientRect();
    const at = (100 * (event.clientX - box.left)) / box.width;
    const gaps = lefts.map((left) => Math.abs(left - at));
    show(gaps.indexOf(Math.min(...gaps)));
  }

  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);
  plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const last = rows.length - 1;
    const targets = { ArrowLeft: Math.max(current - 1, 0), ArrowRight: Math.min(current + 1, last), Home: 0, End: last };
    if (event.key === "Escape") hide();
    if (!(event.key in targets)) return;
    event.preventDefault();
    show(targets[event.key]);
  });
}

document.querySelectorAll(".chart").forEach(makeReadable);

// On paper nothing can be opened: what is worth printing is opened first, and closed again afterwards.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details.print-open:not([open])")) {
    details.open = true;
    details.dataset.opened = "";
  }
});
addEventListener("afterprint", () => {
  for (const details of document.querySelectorAll("details[data-opened]")) {
    details.open = false;
    delete details.dataset.opened;
  }
});

// A link to a part inside a closed block opens it.
function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const block = target.querySelector("details.run") || target.closest("details.run");
  if (block) block.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();
