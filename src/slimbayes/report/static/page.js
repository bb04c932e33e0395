"use strict";
(() => {
  const root = document.documentElement;

  // Light and dark.
  const toggle = document.querySelector(".theme");
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wantsDark.matches);
  const name = () => { toggle.textContent = dark() ? "Light" : "Dark"; toggle.setAttribute("aria-label", `Use the ${dark() ? "light" : "dark"} theme`); };
  if (toggle) {
    toggle.hidden = false;
    toggle.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("slimbayes-theme", root.dataset.theme); } catch (refused) {}
      name();
    });
    wantsDark.addEventListener("change", name);
    name();
  }

  // Sorting: numbers by value, words by alphabet, what is missing always last; equal rows keep their order.
  const words = new Intl.Collator(root.lang, { numeric: true });
  const compare = (a, b) => (a.dataset.value !== undefined && b.dataset.value !== undefined
    ? Number(a.dataset.value) - Number(b.dataset.value) : words.compare(a.textContent.trim(), b.textContent.trim()));
  const missing = (cell) => cell.dataset.missing !== undefined;
  for (const button of document.querySelectorAll("table.sortable .sort")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const table = head.closest("table");
      const current = head.getAttribute("aria-sort");
      const first = head.dataset.first || "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = current === first ? other : first;
      for (const one of table.querySelectorAll("th[aria-sort]")) one.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const body = table.tBodies[0];
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...body.rows].sort((left, right) => {
        const a = left.cells[head.cellIndex];
        const b = right.cells[head.cellIndex];
        return missing(a) || missing(b) ? missing(a) - missing(b) : sign * compare(a, b);
      });
      body.append(...rows);
      const label = (row) => row && row.cells[0].textContent;
      for (const row of rows) row.classList.toggle("same", label(row) === label(row.previousElementSibling));
      const said = document.querySelector(".said");
      if (said) said.textContent = `Sorted by ${button.textContent.trim()}, ${order}.`;
    });
  }

  // On paper, what is worth its ink is open.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details[data-print]:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
})();
