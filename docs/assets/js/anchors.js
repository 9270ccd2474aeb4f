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
