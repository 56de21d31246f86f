"use strict";
/* What every page does: light or dark, opening what a link leads to, and sorting tables by a column. */
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)"), key = "simsched-theme";
  const kept = () => { try { return localStorage.getItem(key); } catch { return null; } };
  const keep = value => { try { localStorage.setItem(key, value); } catch { /* a page from a file may not */ } };
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const show = () => { button.textContent = dark() ? "Light" : "Dark"; button.title = `Switch to ${button.textContent.toLowerCase()} colours`; };
  if (kept()) root.dataset.theme = kept();
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; keep(root.dataset.theme); show(); });
  system.addEventListener("change", show);
  show();

  function reveal() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    target.scrollIntoView();
    target.querySelector("summary")?.focus({preventScroll: true});
  }
  addEventListener("hashchange", reveal);
  document.addEventListener("click", event => {  // to where the page is already
    const link = event.target.closest("a[href^='#']");
    if (link && link.hash === location.hash) reveal();
  });
  reveal();

  const value = (row, place) => row.cells[place].textContent.trim();
  const number = text => parseFloat((text.replace(/,/g, "").match(/-?\d[\d.]*/) || [NaN])[0]);
  function sort(head, place) {
    const body = head.closest("table").tBodies[0], falling = head.ariaSort === "descending";
    const words = place === 0 || head.classList.contains("text");
    const by = (one, other) => {
      const [a, b] = [value(one, place), value(other, place)], [x, y] = [number(a), number(b)];
      return words || isNaN(x) || isNaN(y) ? a.localeCompare(b, "en", {numeric: true}) : x - y;
    };
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.ariaSort = falling ? "ascending" : "descending";
    body.append(...[...body.rows].sort((one, other) => falling ? by(one, other) : by(other, one)));
  }
  document.querySelectorAll(".block thead th").forEach(head => {
    if (head.closest("table").tBodies[0].rows.length < 2) return;
    const place = head.cellIndex, ask = document.createElement("button");
    ask.type = "button";
    ask.textContent = head.textContent;
    ask.title = "Sort by this column";
    head.replaceChildren(ask);
    ask.addEventListener("click", () => sort(head, place));
  });
})();
