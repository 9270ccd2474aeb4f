// A link to a part of another page leads to that part: Material's instant navigation sometimes keeps the old position.
let wanted = "";
addEventListener("click", ({ target }) => {
  wanted = target.closest?.("a[href*='#']")?.hash ?? "";
}, { capture: true });
document$.subscribe(() => {
  const part = wanted && wanted === location.hash && document.getElementById(decodeURIComponent(wanted.slice(1)));
  wanted = "";
  if (part) requestAnimationFrame(() => location.replace(location.hash));
});

// A settled page is whole (see site.css), so that every way through it is as long as it looks. One part at a time, for a
// reader's touch not to wait; soon also on a machine that is never idle.
const LARGE = ".drawing, .explore, figure.chart, .chart-still, .highlight, .md-typeset__scrollwrap";
const idle = window.requestIdleCallback ? (step) => requestIdleCallback(step, { timeout: 100 }) : setTimeout;

function settle() {
  const part = document.querySelector(`:is(${LARGE}):not([data-settled])`);
  if (part) {
    part.dataset.settled = "";
    idle(settle);
    return;
  }
  document.documentElement.dataset.settled = "";
  if (CSS.supports("overflow-anchor: auto") || !location.hash) return;
  document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

addEventListener("load", () => idle(settle));
document$.subscribe(() => {
  if (document.readyState === "complete") idle(settle);
});
