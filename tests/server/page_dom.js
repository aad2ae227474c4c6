// Runs the script of a page against answers that were recorded, with the little of a browser that it uses.
// Standard input: {"script", "answers": {path: [status, body]}}. Prints what the page shows and asked for.
"use strict";
const fs = require("fs"), vm = require("vm");
const given = JSON.parse(fs.readFileSync(0, "utf8"));

class Node {
  constructor(tag) { Object.assign(this, { tag, children: [], className: "", attributes: {}, handlers: {}, hidden: false }); }
  append(...nodes) { this.children.push(...nodes); }
  replaceChildren(...nodes) { this.children = nodes; }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(name, handler) { this.handlers[name] = handler; }
  set textContent(text) { this.children = [String(text)]; }
  get textContent() { return this.children.map((one) => typeof one === "string" ? one : one === undefined ? "" : one.textContent).join(" "); }
  set innerHTML(_) { throw new Error("markup from the server"); }
}
const ids = new Map(), asked = [], fields = {};
const document = {
  hidden: false,
  getElementById: (id) => { if (!ids.has(id)) ids.set(id, new Node(id)); return ids.get(id); },
  createElement: (tag) => new Node(tag), createElementNS: (_, tag) => new Node(tag),
};
const context = {
  document, console, URLSearchParams, encodeURIComponent, setInterval: () => 0, alert: (text) => asked.push(["alert", text]), confirm: () => true,
  sessionStorage: { kept: {}, getItem(name) { return this.kept[name] || null; }, setItem(name, value) { this.kept[name] = value; } },
  FormData: class { get(name) { return fields[name] || ""; } },
  fetch: async (path, { method, headers }) => {
    asked.push([method, path, headers.authorization || ""]);
    const [status, body] = given.answers[method + " " + path] || given.answers[path.split("?")[0]] || [404, { detail: "no such address" }];
    return { status, ok: status < 400, json: async () => body };
  },
};
vm.createContext(context);
vm.runInContext(given.script, context);
const settled = async () => { for (let n = 0; n < 50; n++) await new Promise((done) => setImmediate(done)); };
const find = (node, test) => test(node) ? node : (node.children || []).filter((one) => one instanceof Node).map((one) => find(one, test)).find(Boolean);
(async () => {
  await settled();
  for (const step of given.steps || []) {
    Object.assign(fields, step.fields || {});
    const place = ids.get(step.on), node = step.press ? find(place, (one) => one.tag === "button" && one.textContent === step.press) : place;
    await node.handlers[step.press ? "click" : "submit"]({ preventDefault() {} });
    await settled();
  }
  const texts = Object.fromEntries([...ids].map(([id, node]) => [id, node.textContent]));
  const hidden = [...ids].filter(([, node]) => node.hidden).map(([id]) => id);
  console.log(JSON.stringify({ texts, hidden, asked, kept: context.sessionStorage.kept }));
})();
