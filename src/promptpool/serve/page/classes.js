// Every class with its pictures and how well it is known; one can be renamed or forgotten.

import { announce, bar, button, by, byName, confirmed, count, inShort, make, newId, several } from "./parts.js"
import { call } from "./server.js"
import { known, labels, refresh } from "./known.js"
import { problemWith } from "./chooser.js"

const MANY = 12
const ORDERS = {
  name: (one, other) => byName(one.name, other.name),
  pictures: (one, other) => one.pictures - other.pictures,
  accuracy: (one, other) => (one.accuracy ?? 2) - (other.accuracy ?? 2), // what is not known comes last
}
let sorted = "name"
let down = false
let wanted = ""

export function showClasses() {
  const title = make("h3", { tabindex: "-1" }, "Classes")
  if (!known.classes.length) {
    const teach = make("p", {}, make("a", { class: "button", href: "#teach" }, "Teach it"))
    by("classes").replaceChildren(title, make("p", { class: "quiet" }, "It has learned nothing yet."), teach)
    return
  }
  const said = known.classifier.exact
    ? "Recognised: of its own pictures, each judged as if it had not been learned."
    : "This method can rename a class, but not forget it or join it to another."
  const change = make("th", { scope: "col" }, make("span", { class: "hidden" }, "Change"))
  const heads = [head("name", "Class"), head("pictures", "Pictures"), head("accuracy", "Recognised"), change]
  const table = make(
    "table",
    { class: "classes" },
    make("thead", {}, make("tr", {}, heads)),
    make("tbody", { id: "class-rows" }),
  )
  by("classes").replaceChildren(
    make("div", { class: "row spread" }, title, find()),
    make("p", { class: "quiet" }, said),
    make("div", { class: "wide tall", tabindex: "0", role: "region", "aria-label": "Classes" }, table),
  )
  rows()
}

function find() {
  const id = newId()
  const input = make("input", { id, type: "search", placeholder: "Find a class", value: wanted })
  input.addEventListener("input", () => {
    wanted = input.value
    rows()
  })
  const label = make("label", { for: id, class: "hidden" }, "Find a class")
  return make("div", { class: "find", hidden: known.classes.length < MANY }, label, input)
}

function head(key, text) {
  const order = () => (sorted !== key ? "none" : down ? "descending" : "ascending")
  const element = make("th", { scope: "col", "data-key": key, "aria-sort": order() })
  const press = () => {
    down = sorted === key && !down
    sorted = key
    for (const each of element.parentElement.children) if (each.dataset.key) each.setAttribute("aria-sort", "none")
    element.setAttribute("aria-sort", order())
    rows()
  }
  element.append(button([text, make("span", { class: "arrow", "aria-hidden": "true" })], press, { class: "sort" }))
  return element
}

function rows() {
  const shown = known.classes.filter(each => each.name.toLowerCase().includes(wanted.trim().toLowerCase()))
  shown.sort((one, other) => (down ? -1 : 1) * ORDERS[sorted](one, other) || ORDERS.name(one, other))
  const none = make("tr", {}, make("td", { colspan: 4, class: "quiet" }, `No class has “${wanted}” in its name.`))
  by("class-rows").replaceChildren(...(shown.length ? shown.map(row) : [none]))
}

function row({ name, pictures, accuracy }) {
  const rename = button("Rename", () => renaming(element, name, rename), {
    class: "link",
    "aria-label": `Rename ${name}`,
  })
  const forget = button("Forget", () => forgetting(element, name, pictures, forget), {
    class: "link",
    "aria-label": `Forget ${name}`,
  })
  const measure =
    typeof accuracy === "number"
      ? [bar(accuracy), make("span", { class: "number" }, inShort(accuracy))]
      : make("span", { class: "quiet" }, "not measured")
  const element = make(
    "tr",
    {},
    make("th", { scope: "row" }, name),
    make("td", { class: "number" }, count(pictures)),
    make("td", { class: "measure" }, measure),
    make("td", { class: "change" }, make("div", { class: "row" }, rename, known.classifier.exact && forget)),
  )
  return element
}

// A question about a class stands in a line of its own below it; there is one at a time.
function below(element, question) {
  for (const old of by("class-rows").querySelectorAll(".below")) old.remove()
  const line = make("tr", { class: "below" }, make("td", { colspan: 4 }, question))
  element.after(line)
  line.scrollIntoView({ block: "nearest" })
}

function forgetting(element, name, pictures, pressed) {
  const question = `Forget ${name}? Its ${several(pictures, "picture")} will be taken out as if never learned.`
  const act = async () => {
    await call("DELETE", `classes/${encodeURIComponent(name)}`)
    await changed(`${name} is forgotten.`)
  }
  confirmed(pressed, question, "Forget it", "Keep it", act, group => below(element, group))
}

function renaming(element, name, pressed) {
  const id = newId()
  const end = () => {
    form.closest("tr").remove()
    pressed.focus()
  }
  const said = make("p", { id: `${id}-said`, class: "quiet", role: "status" })
  const input = make("input", {
    id,
    type: "text",
    value: name,
    autocomplete: "off",
    maxlength: 200,
    "aria-describedby": said.id,
  })
  input.addEventListener("input", () => {
    const to = input.value.trim()
    const joins = to !== name && labels().includes(to) ? `${to} is a class already: the two become one.` : ""
    said.className = "quiet"
    said.textContent = problemWith(to) || joins
  })
  const buttons = [make("button", { type: "submit", class: "primary" }, "Rename"), button("Cancel", end)]
  const form = make(
    "form",
    { class: "question", "aria-label": `Rename ${name}` },
    make("label", { for: id }, `New name of ${name}`),
    input,
    said,
  )
  form.append(make("div", { class: "row" }, buttons))
  form.addEventListener("keydown", event => event.key === "Escape" && end())
  form.addEventListener("submit", async event => {
    event.preventDefault()
    const to = input.value.trim()
    if (!to || to === name) {
      end()
      return
    }
    try {
      await call("POST", `classes/${encodeURIComponent(name)}/rename`, { to })
      await changed(`${name} is called ${to} now.`)
    } catch (error) {
      said.className = "problem"
      said.textContent = error.message
    }
  })
  below(element, form)
  input.select()
}

async function changed(text) {
  await refresh()
  by("classes").querySelector("h3").focus()
  announce(text)
}
