/* Filters the options of configuration.md by words. Without JavaScript the page is complete. */
const place = document.querySelector(".option-filter");
if (place) {
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = "Filter: parts of a key, an alias or its meaning";
  input.setAttribute("aria-label", "Filter the options");
  const said = document.createElement("small");
  said.setAttribute("role", "status");
  place.append(input, said);

  // Each option is its heading and what follows, up to the next one. They are collected at the
  // first use, because the theme wraps tables when the page has loaded.
  let groups;
  const collect = () => {
    groups = [];
    for (let element = place.nextElementSibling; element; element = element.nextElementSibling) {
      if (element.tagName === "H2") {
        groups.push({ elements: [element], options: [] });
      } else if (groups.length) {
        const group = groups.at(-1);
        if (element.tagName === "H3") group.options.push({ elements: [], text: "" });
        const part = group.options.at(-1) || group;
        part.elements.push(element);
        part.text += ` ${element.textContent.toLowerCase()}`;
      }
    }
  };
  const show = (elements, isShown) => elements.forEach((element) => (element.hidden = !isShown));

  input.addEventListener("input", () => {
    if (!groups) collect();
    const words = input.value.toLowerCase().replace(/\bflink\.(?=\w)/g, "").split(/\s+/).filter(Boolean);
    let found = 0;
    for (const group of groups) {
      const fitting = group.options.filter(({ text }) => words.every((word) => text.includes(word)));
      for (const option of group.options) show(option.elements, fitting.includes(option));
      show(group.elements, fitting.length > 0 || words.length === 0);
      found += fitting.length;
    }
    said.textContent = words.length ? `${found} options` : "";
  });
}
