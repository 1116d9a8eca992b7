// Pictures on their way into the next lesson: small groups, one after the other, so that five hundred are no burden.

import { announce, button, make, several } from "./parts.js"
import { call } from "./server.js"
import { addWaiting, changes } from "./known.js"
import { groups } from "./small.js"

const queue = []
let sent = 0
let total = 0
let refused = []
let problem = ""
let stopped = false
let working = false

export const isSending = () => working

// `pictures` are { file, label }.
export function send(pictures) {
  if (!working) {
    sent = total = 0
    refused = []
    problem = ""
    stopped = false
  }
  queue.push(...pictures)
  total += pictures.length
  work()
}

async function work() {
  if (working || !queue.length) return
  working = true
  tell()
  while (queue.length && !stopped) {
    const [group] = groups(queue, each => each.file.size)
    queue.splice(0, group.length)
    await sendGroup(group)
    tell()
  }
  working = false
  total -= queue.splice(0).length
  tell()
  const first = `${several(sent - refused.length, "picture is", "pictures are")} in the next lesson`
  announce(refused.length ? `${first}; ${several(refused.length, "file was", "files were")} refused.` : `${first}.`)
}

async function sendGroup(group) {
  const form = new FormData()
  for (const { file } of group) form.append("files", file, file.name)
  form.append("labels", JSON.stringify(group.map(each => each.label)))
  try {
    const answer = await call("POST", "lessons", form, true)
    refused.push(...answer.refused)
    addWaiting(answer.added)
  } catch (error) {
    if (group.length > 1 && [400, 413, 422].includes(error.status)) {
      // one of them is to blame, the others are not
      for (const each of group) await sendGroup([each])
      return
    }
    if ([400, 413, 415, 422].includes(error.status)) refused.push({ name: group[0].file.name, error: error.message })
    else {
      problem = error.message
      stopped = true
      queue.unshift(...group)
      return
    }
  }
  sent += group.length
}

const tell = () => changes.dispatchEvent(new Event("sending"))

// What is to be seen of it: a bar while pictures go, then what was refused.
export function sendingShown() {
  const parts = []
  if (working) {
    parts.push(
      make(
        "div",
        { class: "row spread" },
        make("p", {}, `Sending ${Math.min(sent + 1, total)} of ${several(total, "picture")}.`),
        button(
          "Stop",
          () => {
            stopped = true
          },
          { "aria-label": "Stop sending" },
        ),
      ),
    )
    parts.push(make("progress", { max: Math.max(total, 1), value: sent, "aria-label": "Pictures sent" }))
  }
  if (problem)
    parts.push(
      make(
        "p",
        { class: "problem", role: "alert" },
        `${problem} ${several(sent - refused.length, "picture")} arrived; give the others once more.`,
      ),
    )
  if (refused.length) {
    parts.push(
      make(
        "details",
        {},
        make("summary", { class: "problem" }, `${several(refused.length, "file was", "files were")} refused`),
        make(
          "ul",
          { class: "plain" },
          refused.slice(0, 50).map(each => make("li", {}, make("strong", {}, each.name), ` ${each.error}`)),
        ),
      ),
    )
  }
  return parts
}
