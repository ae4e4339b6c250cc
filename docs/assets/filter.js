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

  // Each option is its heading and what follows, up to the next one.
  const groups = [];
  for (let element = place.nextElementSibling; element; element = element.nextElementSibling) {
    if (element.tagName === "H2") {
      groups.push({ elements: [element], options: [] });
    } else if (groups.length) {
      const group = groups.at(-1);
      if (element.tagName === "H3") group.options.push({ elements: [] });
      (group.options.at(-1) || group).elements.push(element);
    }
  }
  const reference = groups.filter((group) => group.options.length);
  for (const option of reference.flatMap((group) => group.options)) {
    option.text = option.elements.map((element) => element.textContent).join(" ").toLowerCase();
  }
  const show = (elements, isShown) => elements.forEach((element) => (element.hidden = !isShown));

  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const group of groups) {
      let inGroup = 0;
      for (const option of group.options) {
        const fits = words.every((word) => option.text.includes(word));
        show(option.elements, fits);
        inGroup += fits;
      }
      show(group.elements, inGroup > 0 || words.length === 0);
      found += inGroup;
    }
    said.textContent = words.length ? `${found} options` : "";
  });
}
