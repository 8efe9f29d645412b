// The search page: a picture or an indexed image goes to the server, its neighbours come back and are shown.
// Texts from the index are only ever set as textContent, so that a class called <b> stays a text.
import { IndexMap } from "./map.js";

const get = (id) => document.getElementById(id);
const EMPTY = "This index is empty: add images with `ccp index`, and reload this page.";
const state = { facts: null, query: null, pictures: [], results: [], notes: [], map: null, mapped: null, search: 0 };

function make(tag, classes = "", text = null) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text !== null) element.textContent = text;
  return element;
}

// Names of folders have no blanks: a line may break behind a mark in them, before it has to break within a word.
function makeName(classes, text) {
  const element = make("span", classes);
  text.split(/(?<=[_/-]|\.(?=\D))/).forEach((part, place) => element.append(...(place ? [make("wbr"), part] : [part])));
  return element;
}

async function ask(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new Error("The server does not answer; is it still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.detail || `The server answered ${response.status}.`);
  return answer;
}

function say(text, problem = false) {
  get("message").textContent = text;
  get("message").classList.toggle("problem", problem);
}

function warn(text) {
  get("warning").textContent = text ?? "";
  get("warning").hidden = !text;
}

// ---- what is searched with, and under which conditions

const quoted = (text) => `"${text.replace(/\\/g, "\\\\").replace(/"/g, '\\"')}"`;

function condition() {
  const parts = [];
  if (get("class-filter").value) parts.push(`label = ${quoted(get("class-filter").value)}`);
  for (const select of document.querySelectorAll("#attribute-filters select")) {
    if (select.value === "") continue;
    const value = JSON.parse(select.value);
    parts.push(`\`${select.dataset.name}\` = ${typeof value === "number" ? value : quoted(value)}`);
  }
  const own = get("where").value.trim();
  if (own) parts.push(`(${own})`);
  return parts.join(" and ");
}

async function search() {
  if (!state.query) return;
  const number = ++state.search; // an answer that was overtaken by a later search is dropped
  const form = new FormData();
  if (state.query.id !== undefined) form.set("id", state.query.id);
  else form.set("image", state.query.file, state.query.file.name || "picture");
  form.set("k", get("k").value);
  const conditions = condition();
  form.set("where", conditions);
  say("Searching …");
  const begun = performance.now();
  try {
    const answer = await ask("/search", { method: "POST", body: form });
    if (answer.version !== state.facts.version) await followIndex();
    if (number !== state.search) return;
    warn(answer.warning);
    state.results = answer.results;
    state.conditions = conditions;
    state.notes = answer.notes;
    if (answer.query) {
      get("truth").value = answer.query.label ?? "";
      get("query-name").textContent = [answer.query.label, answer.query.path].filter(Boolean).join(" · ");
    }
    say("");
    showResults();
    state.map?.mark(state.query.id, state.results.map((result) => result.id));
    get("results").dataset.milliseconds = Math.round(performance.now() - begun);
  } catch (error) {
    await followIndex().catch(() => {}); // the image that was clicked may have been removed from the index
    if (number !== state.search) return;
    state.results = []; // those of an earlier search would pass for this one's
    showResults();
    say(error.message, true);
  }
}

function searchFile(file, remember = true) {
  if (!file) return;
  state.query = { file };
  get("truth").value = "";
  get("query-name").textContent = file.name || "a pasted picture";
  showQuery(URL.createObjectURL(file));
  if (remember) history.pushState({ picture: state.pictures.push(file) - 1 }, "", location.pathname);
  openTab("results");
  search();
}

function searchImage(id, remember = true) {
  state.query = { id };
  showQuery(pictureOf(id, "large"));
  if (remember) history.pushState(null, "", `#${id}`);
  openTab("results");
  search();
}

function showQuery(address) {
  const preview = get("preview");
  if (preview.src.startsWith("blob:")) URL.revokeObjectURL(preview.src);
  preview.src = address;
  preview.alt = "the picture that is searched with";
  preview.hidden = false;
}

// ---- results

function card(id, label, facts) {
  const button = make("button", "card");
  button.type = "button";
  button.dataset.id = id;
  const picture = make("span", "picture");
  const image = make("img");
  image.alt = label ?? `image ${id}`;
  image.loading = "lazy";
  image.src = pictureOf(id);
  image.addEventListener("error", () => picture.replaceChildren("the file is missing"));
  picture.append(image);
  button.append(picture);
  if (label !== null && label !== undefined) button.append(makeName("class", label));
  for (const fact of facts) button.append(makeName("facts", fact));
  button.addEventListener("click", () => searchImage(id));
  return button;
}

function verdictOf(result) {
  const truth = get("truth").value;
  if (!truth || result.label === null) return "";
  return result.label === truth ? "right" : "wrong";
}

function showResults() {
  const list = get("results");
  list.replaceChildren();
  for (const result of state.results) {
    const facts = [result.distance.toFixed(4), ...Object.entries(result.attributes).map(([name, value]) => `${name}: ${value}`)];
    const item = make("li");
    const shown = card(result.id, result.label, facts);
    shown.title = result.path;
    const verdict = verdictOf(result);
    if (verdict) {
      shown.classList.add(verdict);
      shown.append(make("span", "facts verdict", verdict === "right" ? "✓ same class" : "✗ other class"));
    }
    item.append(shown);
    item.dataset.distance = result.distance;
    list.append(item);
  }
  if (state.query && !state.results.length) say(state.facts.count ? ["No image fits these conditions.", ...state.notes].join(" ") : EMPTY);
  drawLine();
}

// How far the ruler reaches: all results, and the line unless it is so far away that it would squeeze them.
function reachOf(threshold) {
  const last = Math.max(...state.results.map((result) => result.distance), 1e-6);
  return 1.04 * Math.max(last, Math.min(threshold?.distance ?? 0, 1.6 * last));
}

function drawLine() {
  const threshold = state.facts.thresholds[get("rate").value];
  const axis = get("axis");
  get("ruler").hidden = !state.results.length;
  get("rate-box").hidden = !threshold || !state.results.length;
  axis.replaceChildren();
  get("results").querySelector(".line")?.remove();
  const items = [...get("results").children];
  if (threshold) {
    const percent = `${+(100 * threshold.rate).toPrecision(2)} %`;
    get("rate-text").textContent = percent;
    get("promise").textContent = threshold.promise;
    get("rate").setAttribute("aria-valuetext", `${percent}, up to the distance ${threshold.distance.toFixed(3)}`);
  }
  if (!items.length) return (get("summary").textContent = "");
  const reach = reachOf(threshold);
  get("farthest").textContent = reach.toFixed(2);
  for (const result of state.results) {
    const dot = make("span", `dot ${verdictOf(result)}`);
    dot.style.left = `${(100 * result.distance) / reach}%`;
    axis.append(dot);
  }
  const right = state.results.filter((result) => verdictOf(result) === "right").length;
  const judged = state.results.filter((result) => verdictOf(result)).length;
  let text = judged ? `${right} of ${judged} results are of the same class. ` : "";
  if (threshold) {
    const inside = state.results.filter((result) => result.distance <= threshold.distance).length;
    const place = Math.min(100, (100 * threshold.distance) / reach);
    const left = make("span", "left"), mark = make("span", "mark");
    left.style.width = mark.style.left = `${place}%`;
    axis.append(left, mark);
    const percent = get("rate-text").textContent;
    // The rate is of pairs, not of results: what it comes to in an index of this size belongs to an honest sentence.
    const expected = Math.ceil((threshold.rate * state.facts.count).toPrecision(9)).toLocaleString("en");
    const among = state.conditions
      ? ", of the images of other classes that fit the conditions."
      : `: at that rate, up to ${expected} of ${state.facts.count.toLocaleString("en")} images of other classes.`;
    text +=
      `${inside} of ${items.length} lie left of the line. Everything left of this line counts as the same class, with at most ${percent} ` +
      `false matches on ${threshold.measured_on}${among}`;
    const line = make("li", "line", `distance ${threshold.distance.toFixed(3)} · at most ${percent} false matches on ${threshold.measured_on} before this line`);
    items.forEach((item, place) => item.classList.toggle("beyond", place >= inside));
    if (inside < items.length) items[inside].before(line);
    else get("results").append(line);
  }
  get("summary").textContent = text;
}

function walkResults(event) {
  const cards = [...get("results").querySelectorAll(".card")];
  const place = cards.indexOf(document.activeElement);
  if (place < 0) return;
  const across = cards.filter((one) => one.offsetTop === cards[0].offsetTop).length || 1;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
  const next = step && cards[place + step];
  if (next) {
    next.focus();
    event.preventDefault();
  }
}

// ---- views

const TABS = ["results", "map", "confused"];

function openTab(name) {
  for (const each of TABS) {
    const tab = get(`tab-${each}`);
    tab.setAttribute("aria-selected", each === name);
    tab.tabIndex = each === name ? 0 : -1;
    get(`view-${each}`).hidden = each !== name;
  }
  if (name === "map") showMap();
  if (name === "confused") showConfusions();
}

async function showMap() {
  if (state.mapped === state.facts.version) return state.map.draw();
  try {
    const points = await ask("/index/map");
    state.mapped = state.facts.version;
    if (state.map) state.map.move(points);
    else state.map = new IndexMap(get("map"), points, searchImage, pictureOf);
    state.map.mark(state.query?.id, state.results.map((result) => result.id));
    describeMap(points);
    if (!points.final) improveMap();
  } catch (error) {
    say(error.message, true);
  }
}

function describeMap(points) {
  const some = points.ids.length < state.facts.count ? ` of ${state.facts.count.toLocaleString("en")}` : "";
  get("map-text").textContent =
    `${points.ids.length.toLocaleString("en")}${some} images by ${points.kind}: near each other means alike to the network. ` +
    `A colour is a class. Results are ringed. ${points.final ? "" : "A clearer map is being computed …"}`;
}

async function improveMap() {
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const points = await ask("/index/map").catch(() => null);
  if (!points) return;
  if (!points.final) return improveMap();
  state.map.move(points);
  describeMap(points);
}

async function showConfusions() {
  if (get("confused-text").textContent) return;
  try {
    const found = await ask("/index/confusions");
    if (found.right === null) return (get("confused-text").textContent = "No two images have the same label, so that nothing is known about confusions.");
    const percent = (100 * found.right).toFixed(1);
    get("confused-text").textContent =
      `For ${percent} % of ${found.queries.toLocaleString("en")} images the nearest other image is of the same class. ` +
      (found.pairs.length ? "These classes are taken for each other most often:" : "");
    get("confused").replaceChildren(...found.pairs.map((pair) => { // two answers may come, if the view was opened twice
      const item = make("li"), two = make("div", "two");
      pair.example.forEach((id, place) => two.append(card(id, null, [pair.classes[place]])));
      item.append(two, make("span", "small", `${pair.times} times, ${(100 * pair.share).toFixed(0)} % of their images`));
      return item;
    }));
  } catch (error) {
    say(error.message, true);
  }
}

// ---- the start

// A condition has no line breaks or other control characters, and no backquote in a name: no filter is offered for them.
const isSayable = (text) => !/[\x00-\x1f\x7f]/.test(text);

function option(value, text = value) {
  const made = make("option", "", text);
  made.value = value;
  return made;
}

// Another version of the index may show other images under the same ids: the browser must not take them from its store.
const pictureOf = (id, size = "small") => `/images/${id}?size=${size}&version=${state.facts.version}`;

// Fills a select anew and keeps what was chosen, unless it is gone; the first option stands for no choice.
function offer(select, options) {
  const chosen = select.value;
  select.replaceChildren(select.firstElementChild, ...options);
  select.value = options.some((one) => one.value === chosen) ? chosen : "";
}

// The index has changed while this page was open: show what it holds now.
async function followIndex() {
  const facts = await ask("/index");
  if (facts.version === state.facts.version) return;
  fillIn(facts);
  get("confused-text").textContent = "";
  get("confused").replaceChildren();
}

function fillIn(facts) {
  const isFirst = state.facts === null;
  state.facts = facts;
  document.title = `Search ${facts.name}`;
  get("name").textContent = facts.name;
  const labels = Object.entries(facts.labels);
  get("about").textContent = `${facts.count.toLocaleString("en")} images` + (labels.length ? ` of ${labels.length.toLocaleString("en")} classes` : "") + `, embedded by ${facts.model}`;
  warn(facts.warning);
  const sayable = labels.filter(([label]) => isSayable(label));
  offer(get("class-filter"), sayable.map(([label, count]) => option(label, `${label} (${count})`)));
  offer(get("truth"), labels.map(([label]) => option(label)));
  fillInAttributes(facts.attributes);
  if (isFirst && facts.thresholds.length) {
    const slider = get("rate");
    slider.max = facts.thresholds.length - 1;
    slider.value = facts.thresholds.findIndex((one) => one.certified); // the only one that was measured on test classes
  }
}

function fillInAttributes(attributes) {
  const chosen = new Map([...document.querySelectorAll("#attribute-filters select")].map((one) => [one.dataset.name, one.value]));
  get("attribute-filters").replaceChildren();
  for (const [name, values] of Object.entries(attributes)) {
    const sayable = values.filter((value) => isSayable(String(value)));
    if (!sayable.length || !isSayable(name) || name.includes("`")) continue;
    const label = make("label", "", `${name} `), select = make("select");
    select.dataset.name = name;
    select.append(option("", "any"), ...sayable.map((value) => option(JSON.stringify(value), String(value))));
    if ([...select.options].some((one) => one.value === chosen.get(name))) select.value = chosen.get(name);
    label.append(select);
    get("attribute-filters").append(label);
  }
}

async function offerStart() {
  const number = ++state.search;
  state.query = null;
  state.results = [];
  get("preview").hidden = true;
  get("query-name").textContent = get("truth").value = "";
  say("");
  showResults();
  state.map?.mark(null, []);
  openTab("results");
  if (!state.facts.count) return say(EMPTY);
  const { ids, labels, classes } = await ask("/index/map");
  if (number !== state.search) return;
  const step = Math.max(1, Math.floor(ids.length / 24));
  get("summary").textContent = "Drop a picture, or start from one of these:";
  for (let place = 0; place < ids.length && place < 24 * step; place += step) {
    const item = make("li");
    item.append(card(ids[place], classes[labels[place]] ?? null, []));
    get("results").append(item);
  }
}

function listen() {
  const drop = get("drop");
  get("file").addEventListener("change", (event) => { searchFile(event.target.files[0]); event.target.value = ""; });
  for (const kind of ["dragenter", "dragover"]) document.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    searchFile(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (file) searchFile(file);
  });
  get("preview").addEventListener("error", () => (get("preview").hidden = true)); // a TIFF file, or no picture at all
  get("filters").addEventListener("submit", (event) => { event.preventDefault(); search(); });
  get("filters").addEventListener("change", (event) => (event.target.id !== "truth" ? search() : state.query && showResults()));
  get("rate").addEventListener("input", drawLine);
  get("results").addEventListener("keydown", walkResults);
  for (const name of TABS) get(`tab-${name}`).addEventListener("click", () => openTab(name));
  document.querySelector(".tabs").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const place = TABS.findIndex((name) => get(`tab-${name}`) === document.activeElement);
    if (!step || place < 0) return;
    const next = TABS[(place + step + TABS.length) % TABS.length];
    openTab(next);
    get(`tab-${next}`).focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input[type=text], select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); get("file").click(); }
    const step = { "[": -1, "]": 1 }[event.key];
    if (step && state.results.length) { get("rate").value = +get("rate").value + step; drawLine(); }
  });
  window.addEventListener("popstate", () => openPlace().catch((error) => say(error.message, true)));
}

// Shows what this place of the browser's history stands for: an indexed image, a picture of the user's own, or the start.
async function openPlace() {
  const id = /^#(\d+)$/.exec(location.hash), own = state.pictures[history.state?.picture];
  if (id) searchImage(Number(id[1]), false);
  else if (own) searchFile(own, false);
  else await offerStart();
}

get("settings").open = innerWidth > 800; // on a phone the results come first
listen();
try {
  fillIn(await ask("/index"));
  await openPlace();
} catch (error) {
  say(error.message, true);
}
