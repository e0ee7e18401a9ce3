// Builds elements. Text is always set as text: labels, tokens and documents are other people's and may hold markup.

const SVG = "http://www.w3.org/2000/svg";
const OF_SVG = new Set(["svg", "g", "path", "rect", "circle", "line", "polyline", "text", "title", "desc"]);

// h("a", { href, class: "x", onclick }, "text", child, [children], null)
export function h(tag, properties = {}, ...children) {
  const element = OF_SVG.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return parent;
}

export function byId(id) {
  return document.getElementById(id);
}
