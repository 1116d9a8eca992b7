// Waiting pictures that somebody has chosen, and what can be done with them: to another class, or out.

import { announce, button, by, make, several } from "./parts.js"
import { call } from "./server.js"
import { relabelWaiting, removeWaiting } from "./known.js"
import { chooser } from "./chooser.js"

const AT_ONCE = 4
export const chosen = new Set() // of ids
const path = id => `lessons/${encodeURIComponent(id)}`

export function mark(id, is) {
  if (is) chosen.add(id)
  else chosen.delete(id)
  const element = by("waiting").querySelector(`[data-id="${CSS.escape(id)}"]`)
  element?.setAttribute("aria-selected", String(is))
}

export function none() {
  for (const id of [...chosen]) mark(id, false)
  toolbar()
}

const said = () => make("p", { role: "status" }, `${several(chosen.size, "picture")} chosen`)

// A bar at the bottom while something is chosen.
export function toolbar(problem = "") {
  const place = by("chosen")
  place.hidden = !chosen.size
  if (chosen.size && place.querySelector(".chooser") && !problem) {
    place.firstElementChild.replaceWith(said())
    return
  }
  const buttons = [
    button("Move to a class", move),
    button("Remove", () => remove([...chosen])),
    button("Choose none", none),
  ]
  place.replaceChildren(said(), make("div", { class: "row" }, buttons))
  if (problem) place.append(make("p", { class: "problem", role: "alert" }, problem))
}

function move() {
  const back = () => {
    by("chosen").replaceChildren()
    toolbar()
    by("chosen").querySelector("button")?.focus()
  }
  const done = label =>
    change(
      [...chosen],
      id => call("PATCH", path(id), { label }, true),
      ids => relabelWaiting(ids, label),
      `moved to ${label}`,
    )
  const { element, input } = chooser({ label: "Move to", up: true, cancel: back, done })
  by("chosen").replaceChildren(said(), element)
  input.focus()
}

export const remove = ids => change(ids, id => call("DELETE", path(id), undefined, true), removeWaiting, "removed")

// Change pictures one by one, a few at a time; one that is gone already is no mistake.
async function change(ids, one, tell, what) {
  const done = new Set()
  const gone = new Set()
  let problem = ""
  const attempt = async id => {
    try {
      await one(id)
      done.add(id)
    } catch (error) {
      if (error.status === 404) gone.add(id)
      else problem = error.message
    }
  }
  for (let place = 0; place < ids.length; place += AT_ONCE) {
    await Promise.all(ids.slice(place, place + AT_ONCE).map(attempt))
  }
  by("chosen").replaceChildren()
  for (const id of [...done, ...gone]) mark(id, false)
  removeWaiting(gone)
  tell(done)
  if (problem) toolbar(problem)
  announce(`${several(done.size, "picture is", "pictures are")} ${what}.`)
  by("waiting").querySelector("[role=option][tabindex='0']")?.focus()
}
