// Making elements. Everything from the server becomes text, never markup.

/** An element with properties, `data-…`, listeners (`onclick`) and children; null and false children are left out. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
}

/** Puts other children in place of those that are there. */
export function fill(node, ...children) {
  node.replaceChildren();
  add(node, children);
}

export function svg(tag, attributes = {}, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

/** Sets or takes away an attribute. */
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

export function badge(text, tone) {
  return el("span", { className: "badge", "data-tone": tone }, text);
}

/** A list of terms: [[name, value], …]. */
export function pairs(rows, className = "pairs") {
  return el("dl", { className }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

export function notice(text, bad = true) {
  return el("p", { className: bad ? "notice bad" : "notice", role: bad ? "alert" : "status" }, text);
}
