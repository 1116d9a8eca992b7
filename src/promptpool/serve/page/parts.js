// Small parts that every view is made of: elements, numbers as people say them, questions, and what is said aloud.

export const by = id => document.getElementById(id)

// An element: make("button", { class: "primary", type: "button", on: { click } }, "Learn now")
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act)
    else if (name === "set")
      for (const [property, given] of Object.entries(value)) element.style.setProperty(property, given)
    else if (value === true) element.setAttribute(name, "")
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value)
  }
  element.append(...children.flat().filter(each => each !== null && each !== undefined && each !== false))
  return element
}

export const button = (text, click, attributes = {}) =>
  make("button", { type: "button", on: { click }, ...attributes }, text)

let numbers = 0
export const newId = () => `part-${++numbers}`

export const count = number => number.toLocaleString("en")
export const several = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`

// A share of one in per cent; nothing is said to be certain that is only nearly so.
export function percent(share) {
  if (share > 0.995 && share < 1) return "over 99 %"
  if (share > 0 && share < 0.005) return "under 1 %"
  return `${Math.round(100 * share)} %`
}

// The same in a column of numbers.
export const inShort = share => percent(share).replace("over", ">").replace("under", "<")

export function bytes(number) {
  const units = ["bytes", "kB", "MB", "GB", "TB"]
  let place = 0
  while (number >= 1000 && place < units.length - 1) {
    number /= 1000
    place += 1
  }
  return `${place && number < 10 ? number.toFixed(1) : Math.round(number)} ${units[place]}`
}

export function listed(names, most = 6) {
  const shown = names.slice(0, most)
  if (names.length > most) return `${shown.join(", ")} and ${count(names.length - most)} more`
  return shown.length > 1 ? `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}` : shown.join("")
}

export function seconds(number) {
  if (number < 1) return "less than a second"
  if (number < 90) return several(Math.round(number), "second")
  return several(Math.round(number / 60), "minute")
}

// What a server says, as a sentence.
export function sentence(text) {
  const said = String(text).trim()
  const begun = /^[a-z]+[ ,]/.test(said) ? said[0].toUpperCase() + said.slice(1) : said
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`
}

// Numbers in names count as numbers.
const order = new Intl.Collator("en", { numeric: true, sensitivity: "base" })
export const byName = (one, other) => order.compare(one, other) || (one < other ? -1 : one > other ? 1 : 0)

// Say something to those who do not see the page.
export function announce(text) {
  const place = by("said")
  place.textContent = ""
  setTimeout(() => {
    place.textContent = text
  }, 50)
}

// A bar with a share of one; the text beside it says the same.
export const bar = (share, kind = "") =>
  make("span", {
    class: `share ${kind}`,
    "aria-hidden": "true",
    set: { "--share": `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(1)}%` },
  })

// Ask once more, in the place where the button is, or where `put` puts it. Escape and the second button change nothing.
export function confirmed(pressed, question, yes, no, act, put = group => pressed.replaceWith(group)) {
  const id = newId()
  const back = () => {
    if (pressed.isConnected) (group.closest("tr.below") ?? group).remove()
    else group.replaceWith(pressed)
    pressed.focus()
  }
  const sure = button(yes, go, { class: "danger" })
  const keep = button(no, back)
  const said = make("p", { id, role: "alert" }, question)
  const group = make("div", { class: "question", role: "group", "aria-labelledby": id }, said)
  group.append(make("div", { class: "row" }, sure, keep))
  group.addEventListener("keydown", event => event.key === "Escape" && back())
  put(group)
  keep.focus()

  async function go() {
    sure.disabled = keep.disabled = true
    try {
      await act()
    } catch (error) {
      sure.disabled = keep.disabled = false
      said.textContent = error.message
      said.classList.add("problem")
      keep.focus()
    }
  }
}
