// Turns the still of every <figure class="chart"> into a live chart, once there is a reader to use it.

const PLOTLY = new URL("../vendor/plotly-basic-4.1.1.min.js", import.meta.url);
const STYLES = "plotly.js-style-global"; // id of the element in which Plotly brings its style rules
const SITE = new URL("../../", import.meta.url);
const SORRY = "The live chart could not be loaded. The picture above and the table below hold the same numbers.";

const charts = new Map(); // figure → its chart

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.area = figure.querySelector(".chart-area");
    this.plot = element("div", {
      class: "chart-live", role: "img", "aria-labelledby": figure.getAttribute("aria-labelledby") ?? "",
    });
    this.says = element("p", { class: "chart-says", "aria-live": "polite" });
    this.area.append(this.plot);
    this.area.after(this.says);
  }

  // A change that arrives during a draw is drawn right after it.
  async draw() {
    this.stale = true;
    if (this.drawing) return;
    this.drawing = true;
    try {
      const [, plotly] = await Promise.all([(this.loading ??= this.load()), loadPlotly()]);
      while (this.stale && this.figure.isConnected) {
        this.stale = false;
        await nextTask();
        const spec = await (this.loading ??= this.load());
        if (this.stale) continue;
        const { data, layout } = paint(spec, this.figure, this.group);
        await plotly.react(this.plot, data, layout, { displayModeBar: false, responsive: false });
        this.figure.dataset.state = "live";
      }
      if (!this.figure.isConnected) plotly.purge(this.plot);
    } catch (error) {
      this.fail(error);
    } finally {
      this.drawing = false;
    }
  }

  async load() {
    const address = this.figure.dataset.chart;
    const response = await fetch(new URL(address, SITE));
    if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
    const spec = await response.json();
    const select = spec.layout.meta?.select;
    if (select && address === this.figure.dataset.chart) this.offer(select, spec.layout.meta.describe ?? {});
    return spec;
  }

  // The figure names another recording's chart; a group that this one has too stays chosen.
  change() {
    this.loading = undefined;
    this.says.textContent = "";
    if (this.near) this.draw();
  }

  offer({ label, groups, selected }, describe) {
    this.controls?.remove();
    if (groups.includes(this.group)) selected = this.group;
    const select = element("select");
    select.append(...groups.map((group) => new Option(group, group, false, group === selected)));
    select.addEventListener("change", () => {
      this.group = select.value;
      this.says.textContent = describe[this.group] ?? "";
      this.draw();
    });
    this.group = selected;
    const box = element("label");
    box.append(label, select);
    this.controls = element("div", { class: "chart-controls" });
    this.controls.append(box);
    this.plot.before(this.controls);
  }

  fail(error) {
    console.warn(error);
    this.figure.dataset.state = "failed";
    this.says.textContent = SORRY;
  }

  fit() {
    const shown = this.plot.clientWidth > 0;
    if (shown && this.figure.dataset.state === "live") window.Plotly.Plots.resize(this.plot);
  }

  remove() {
    near.unobserve(this.figure);
    sizes.unobserve(this.plot);
    if (this.figure.dataset.state === "live") window.Plotly.purge(this.plot);
  }
}

function element(name, attributes = {}) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Running Plotly and drawing each chart take a phone long: between them the page answers.
function nextTask() {
  return new Promise((resolve) => setTimeout(resolve));
}

let library;
function loadPlotly() {
  library ??= new Promise((resolve, reject) => {
    const script = element("script", { src: PLOTLY.href });
    script.onload = () => {
      if (document.getElementById(STYLES)?.sheet) resolve(keepStyles(window.Plotly));
      else reject(new Error("Plotly's styles are refused: style-src lacks 'unsafe-inline'"));
    };
    script.onerror = () => reject(new Error(`${PLOTLY}: not loaded`));
    document.head.append(script);
  });
  library.catch(() => { library = undefined; });
  return library;
}

// Instant navigation empties <head> of what the next page does not name, Plotly's style element included.
function keepStyles(plotly) {
  const sheet = new CSSStyleSheet();
  for (const rule of document.getElementById(STYLES).sheet.cssRules) {
    sheet.insertRule(rule.cssText, sheet.cssRules.length);
  }
  document.adoptedStyleSheets.push(sheet);
  return plotly;
}

// The spec in the page's present colours and type, without the traces of groups that are not selected.
function paint(spec, figure, group) {
  const style = getComputedStyle(figure);
  const coloured = (text) => text.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
  const shown = spec.data.filter(({ meta }) => meta?.group === undefined || meta.group === group);
  const { data, layout } = JSON.parse(JSON.stringify({ data: shown, layout: spec.layout }), (_, value) =>
    typeof value === "string" ? coloured(value) : value);
  const { width, height, ...rest } = layout;
  const font = { ...layout.font, family: style.fontFamily };
  return { data, layout: { ...rest, font, autosize: true, dragmode: false, uirevision: group ?? "all" } };
}

const reader = new Promise((resolve) => {
  for (const sign of ["pointermove", "pointerdown", "touchstart", "keydown", "wheel", "scroll"]) {
    addEventListener(sign, resolve, { once: true, passive: true });
  }
});

const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    charts.get(target).near = true;
    reader.then(() => charts.get(target)?.draw());
  }
}, { rootMargin: "300px 0px" });

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) charts.get(target.closest("figure.chart"))?.fit();
});

const addresses = new MutationObserver((changes) => {
  for (const figure of new Set(changes.map(({ target }) => target))) charts.get(figure)?.change();
});

function mount() {
  for (const [figure, chart] of charts) {
    if (figure.isConnected) continue;
    chart.remove();
    charts.delete(figure);
  }
  for (const figure of document.querySelectorAll("figure.chart[data-chart]")) {
    if (charts.has(figure)) continue;
    const chart = new Chart(figure);
    charts.set(figure, chart);
    near.observe(figure);
    sizes.observe(chart.plot);
    addresses.observe(figure, { attributes: true, attributeFilter: ["data-chart"] });
  }
}

function repaint() {
  for (const chart of charts.values()) {
    if (chart.drawing || chart.figure.dataset.state === "live") chart.draw();
  }
}

// Material announces every page it swaps in on document$; the reader's colour choice is this attribute of <body>.
if (window.document$) window.document$.subscribe(mount);
else mount();
new MutationObserver(repaint).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });

// Material opens every <details> to print it; the style sheet prints a long table only if its reader had opened it.
addEventListener("beforeprint", () => {
  for (const table of document.querySelectorAll(".chart-table")) table.toggleAttribute("data-shut", !table.open);
});
