// What Material leaves out: a name for the search dialog, and a way into wide tables for the keyboard.
document$.subscribe(() => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  requestAnimationFrame(() => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
      if (!box.closest(".table-scroll")) box.tabIndex = 0;
    }
  });
});
