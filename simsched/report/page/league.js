for (const menu of document.querySelectorAll("select[data-filter]")) {
  menu.addEventListener("change", () => {
    const wanted = [...document.querySelectorAll("select[data-filter]")].map((one) => [one.dataset.filter, one.value]);
    for (const part of document.querySelectorAll("section[data-class]")) {
      part.hidden = wanted.some(([name, value]) => value && part.dataset[name] && part.dataset[name] !== value);
    }
  });
}
