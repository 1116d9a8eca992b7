// A field that finds a class in a list, or takes a new name: arrows and Enter, or a click. Escape leaves.

import { button, byName, make, newId } from "./parts.js"
import { allLabels } from "./known.js"

const MOST = 200 // names shown at once; typing narrows them

export const problemWith = name =>
  name === "unknown" ? "“unknown” is the answer for what it does not know. Choose another name." : ""

// `first` are names that come before the others, `done` gets the one that was chosen, `cancel` comes with a button of its own.
export function chooser({ label, first = [], without = "", text = "", done, cancel = null, up = false }) {
  const id = newId()
  let options = []
  let active = -1
  const input = make("input", {
    id,
    type: "text",
    role: "combobox",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    value: text,
    maxlength: 200,
    placeholder: "Class or new name",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": `${id}-list`,
    "aria-describedby": `${id}-problem`,
  })
  input.addEventListener("input", show)
  input.addEventListener("focus", () => {
    show()
    list.scrollIntoView({ block: "nearest" })
  })
  input.addEventListener("blur", () => setTimeout(hide, 150))
  input.addEventListener("keydown", pressed)
  const list = make("ul", { id: `${id}-list`, role: "listbox", "aria-label": label, hidden: true })
  const problem = make("p", { id: `${id}-problem`, class: "problem", role: "alert" })
  const element = make(
    "div",
    { class: `chooser${up ? " up" : ""}` },
    make("label", { for: id }, label),
    make(
      "div",
      { class: "row tight" },
      make("div", { class: "field" }, input, list),
      cancel && button("Cancel", cancel),
    ),
    problem,
  )

  function show() {
    const typed = input.value.trim()
    const wanted = typed.toLowerCase()
    const rest = allLabels()
      .filter(name => name !== without && !first.includes(name))
      .sort(byName)
    const fitting = [...first, ...rest].filter(name => name.toLowerCase().includes(wanted))
    fitting.sort((one, other) => rank(one, wanted) - rank(other, wanted))
    options = fitting.slice(0, MOST).map(name => ({ name, text: name }))
    if (typed && !fitting.includes(typed)) options.push({ name: typed, text: `New class “${typed}”`, fresh: true })
    active = typed ? 0 : -1
    problem.textContent = ""
    list.replaceChildren(
      ...options.map((option, place) =>
        make(
          "li",
          {
            id: `${id}-${place}`,
            role: "option",
            "aria-selected": String(place === active),
            class: option.fresh ? "fresh" : "",
            on: { pointerdown: event => event.preventDefault(), click: () => take(option.name) },
          },
          option.text,
        ),
      ),
    )
    open(options.length > 0)
    mark()
  }

  const rank = (name, wanted) =>
    wanted && name.toLowerCase() === wanted ? 0 : wanted && name.toLowerCase().startsWith(wanted) ? 1 : 2

  function open(is) {
    list.hidden = !is
    input.setAttribute("aria-expanded", String(is))
  }

  function hide() {
    if (document.activeElement !== input) open(false)
  }

  function mark() {
    ;[...list.children].forEach((each, place) => each.setAttribute("aria-selected", String(place === active)))
    if (active < 0) {
      input.removeAttribute("aria-activedescendant")
      return
    }
    input.setAttribute("aria-activedescendant", `${id}-${active}`)
    list.children[active]?.scrollIntoView({ block: "nearest" })
  }

  function pressed(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault()
      if (list.hidden) show()
      const step = event.key === "ArrowDown" ? 1 : -1
      active = (active + step + options.length + (active < 0 && step < 0 ? 1 : 0)) % Math.max(options.length, 1)
      mark()
    } else if (event.key === "Enter") {
      event.preventDefault()
      if (active >= 0 && options[active]) take(options[active].name)
    } else if (event.key === "Escape") {
      event.stopPropagation()
      if (!list.hidden) open(false)
      else cancel?.()
    }
  }

  function take(name) {
    problem.textContent = problemWith(name)
    if (problem.textContent) return
    open(false)
    done(name)
  }

  return { element, input }
}
