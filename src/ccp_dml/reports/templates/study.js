// Draws the panels that the page describes, in the colours of the reader's scheme, light or dark.
"use strict";

const styles = getComputedStyle(document.documentElement);

// A CSS variable named in the description becomes its value; everything else stays.
function coloured(value) {
  if (Array.isArray(value)) return value.map(coloured);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, coloured(part)]));
  }
  const variable = typeof value === "string" && value.match(/^var\((--[\w-]+)\)$/);
  return variable ? styles.getPropertyValue(variable[1]).trim() : value;
}

const panels = [...document.querySelectorAll(".panel")].map((element) => {
  const described = JSON.parse(element.querySelector("script").textContent);
  element.replaceChildren();
  return { element, described };
});

// Where fingers scroll the page, a drag must not zoom the figure instead, and buttons would hide its title.
const byFinger = matchMedia("(pointer: coarse)").matches;
const dragmode = byFinger ? false : "zoom";
const options = { responsive: true, displaylogo: false, displayModeBar: byFinger ? false : "hover" };

function drawAll() {
  for (const { element, described } of panels) {
    const { data, layout } = coloured(described);
    Plotly.react(element, data, { ...layout, dragmode }, options);
  }
}

drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
