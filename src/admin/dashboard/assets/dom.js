// Elements. Contents are inserted as text or as elements, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

// Creates an element: `on…` are listeners, `class` and `dataset` as in HTML, everything else is an
// attribute; `true` is one without a value; `false`, `null` and `undefined` are left out.
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

// Sets a text only if it differs, so that screen readers do not repeat it.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Sets or removes an attribute in the same way.
export function attribute(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

// Calls `draw` once before the next frame, however often it is requested. A hidden page has no frames and
// is not drawn until it is visible.
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
