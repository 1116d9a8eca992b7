// The pictures that wait for the next lesson, by class. Each class is a list: arrows move, Space chooses, Delete removes.

import { announce, button, by, byName, confirmed, make, newId, several } from "./parts.js"
import { address, call } from "./server.js"
import { changes, known, labels, removeWaiting } from "./known.js"
import { choose } from "./files.js"
import { chosen, mark, none, remove, toolbar } from "./chosen.js"
import { teach } from "./teach.js"

const sections = new Map() // of a class: { element, title, list }
const items = new Map() // of a picture's id: its element

export function prepareWaiting() {
  changes.addEventListener("waiting", render)
  changes.addEventListener("classifier", render)
  by("waiting").append(heading())
  render()
}

// What is there already stays, so that nothing flickers and nobody loses the place.
function render() {
  const groups = new Map()
  for (const picture of known.waiting) groups.set(picture.label, [...(groups.get(picture.label) ?? []), picture])
  discard(items, new Set(known.waiting.map(each => each.id)), (element, id) => {
    chosen.delete(id)
    element.remove()
  })
  discard(sections, groups, ({ element }) => element.remove())
  by("waiting").hidden = !known.waiting.length
  for (const label of [...groups.keys()].sort(byName)) fill(label, groups.get(label))
  toolbar()
}

function discard(map, kept, act) {
  for (const [key, value] of map) {
    if (kept.has(key)) continue
    map.delete(key)
    act(value, key)
  }
}

function fill(label, pictures) {
  if (!sections.has(label)) sections.set(label, section(label))
  const { element, title, list } = sections.get(label)
  const said = `${labels().includes(label) ? "" : "new, "}${several(pictures.length, "picture")}`
  title.replaceChildren(label, " ", make("small", { class: "quiet" }, said))
  const own = pictures.map(item)
  own.forEach((each, place) => {
    if (list.children[place] !== each) list.insertBefore(each, list.children[place] ?? null)
  })
  if (own.filter(each => each.tabIndex === 0).length !== 1)
    own.forEach((each, place) => (each.tabIndex = place ? -1 : 0))
  by("waiting").append(element)
}

function heading() {
  const question = "Take all waiting pictures out of the lesson?"
  const removeAll = async () => {
    await call("DELETE", "lessons", undefined, true)
    by("waiting").firstElementChild.replaceWith(heading())
    removeWaiting(new Set(known.waiting.map(each => each.id)))
    announce("All waiting pictures are removed.")
    by("teach-folder").focus()
  }
  const all = button("Remove all", () => confirmed(all, question, "Remove all", "Keep them", removeAll))
  const text = make("p", { class: "quiet" }, "Choose some to move or remove them.")
  return make("div", { class: "row spread" }, make("div", {}, make("h3", {}, "Waiting pictures"), text), all)
}

function section(label) {
  const id = newId()
  const title = make("h4", { id })
  const list = make("ul", { class: "thumbs", role: "listbox", "aria-multiselectable": "true", "aria-labelledby": id })
  list.addEventListener("keydown", pressed)
  const chooseAll = () => {
    const own = known.waiting.filter(each => each.label === label)
    const every = own.every(each => chosen.has(each.id))
    for (const each of own) mark(each.id, !every)
    toolbar()
  }
  const addTo = async () => teach(await choose(), label)
  const all = button("Choose all", chooseAll, { class: "link", "aria-label": `Choose all of ${label}` })
  const add = button("Add pictures", addTo, { class: "link", "aria-label": `Add pictures to ${label}` })
  const head = make("div", { class: "row spread" }, title, make("div", { class: "row" }, add, all))
  const element = make("section", { class: "class", "data-class": label, "aria-labelledby": id }, head, list)
  return { element, title, list }
}

function item({ id, name }) {
  if (items.has(id)) return items.get(id)
  const source = address(`lessons/${encodeURIComponent(id)}/picture`)
  const image = make("img", { src: source, alt: "", width: 72, height: 72, loading: "lazy", decoding: "async" })
  const about = { "aria-selected": "false", "aria-label": name, title: name, tabindex: "-1", "data-id": id }
  const element = make("li", { role: "option", ...about }, image)
  element.addEventListener("click", () => {
    toggle(id)
    focusOn(element)
  })
  items.set(id, element)
  return element
}

function toggle(id) {
  mark(id, !chosen.has(id))
  toolbar()
}

function focusOn(element) {
  for (const each of element.parentElement.children) each.tabIndex = each === element ? 0 : -1
  element.focus()
}

function pressed(event) {
  const all = [...event.currentTarget.children]
  const place = all.indexOf(event.target)
  if (place < 0) return
  const { key } = event
  const second = all.findIndex(each => each.offsetTop > all[0].offsetTop)
  const across = second < 0 ? all.length : second // in a row
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -place, End: all.length }
  if (key in steps) focusOn(all[Math.min(Math.max(place + steps[key], 0), all.length - 1)])
  else if (key === " " || key === "Enter") toggle(event.target.dataset.id)
  else if (key === "Delete") remove(chosen.size ? [...chosen] : [event.target.dataset.id])
  else if (key === "Escape") none()
  else if (key.toLowerCase() === "a" && (event.ctrlKey || event.metaKey)) {
    for (const each of all) mark(each.dataset.id, true)
    toolbar()
  } else return
  event.preventDefault()
}
