// Elements. Whatever is put in is put in as text or as an element, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

// An element: `on…` are listeners, `class` and `dataset` what they are in HTML, everything else is an
// attribute; `true` is one without a value, and `false`, `null` and `undefined` are none.
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

// Sets a text only where it is another, so that nobody is told the same twice.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Sets or takes away an attribute, likewise.
export function attribute(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

// Calls `draw` once before the next frame, however often it was asked for. In a page that is not seen there
// are no frames, and nothing is drawn until it is.
export function atFrame(draw) {
  let asked = 0;
  const ask = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      draw();
    });
  };
  ask.cancel = () => {
    cancelAnimationFrame(asked);
    asked = 0;
  };
  return ask;
}
