// Escape puts away what a term says, until the reader leaves the term.
addEventListener("keydown", ({ key }) => {
  if (key !== "Escape") return;
  for (const term of document.querySelectorAll(".term:is(:hover, :focus), .term:has(+ .term-says:hover)")) {
    term.dataset.dismissed = "";
    const back = () => term.removeAttribute("data-dismissed");
    term.addEventListener("mouseleave", back, { once: true });
    term.addEventListener("blur", back, { once: true });
  }
});
