// The next lesson: Learn now, how far it is, and what it changed.

import {
  announce,
  bar,
  button,
  by,
  confirmed,
  inShort,
  listed,
  make,
  percent,
  seconds,
  sentence,
  several,
} from "./parts.js"
import { call, get, pause } from "./server.js"
import { changes, known, labels, refresh, refreshWaiting } from "./known.js"
import { isSending, sendingShown } from "./sending.js"
import { undo } from "./versions.js"

const SOON = 250
const LATER = 1000
const STARTED_ANEW =
  "The server was started anew meanwhile. If the lesson was not finished, its pictures wait here again."
let job = null
let problem = ""

export function prepareLesson() {
  for (const what of ["waiting", "classifier", "sending"]) changes.addEventListener(what, render)
  by("lesson").append(
    make("h3", {}, "The next lesson"),
    make("p", { id: "lesson-says" }),
    make("div", { class: "row" }, button("Learn now", learn, { id: "learn", class: "primary" })),
    make("div", { id: "lesson-goes" }),
  )
  render()
}

// A lesson that another window began is followed too.
export async function followRunning() {
  const { jobs } = await get("jobs")
  const running = jobs.find(each => each.kind === "learn" && ["waiting", "running"].includes(each.state))
  if (!running || job) return
  job = running
  await followed(running.id)
}

function render() {
  const names = [...new Set(known.waiting.map(each => each.label))]
  const fresh = names.filter(name => !labels().includes(name))
  const says = known.waiting.length
    ? `${several(known.waiting.length, "picture")} of ${several(names.length, "class", "classes")} ${known.waiting.length === 1 ? "waits" : "wait"}${fresh.length ? `; new: ${listed(fresh, 4)}` : ""}.`
    : "No picture waits. Drop a folder, or correct an answer in Ask."
  by("lesson-says").textContent = says
  by("learn").disabled = !known.waiting.length || job !== null || isSending()
  const parts = sendingShown()
  if (job) parts.push(...learning(job))
  if (problem) parts.push(make("p", { class: "problem", role: "alert" }, problem))
  by("lesson-goes").replaceChildren(...parts)
}

function learning({ what, done, total, state }) {
  const doing = what ? what[0].toUpperCase() + what.slice(1) : "Learning"
  const said =
    state === "waiting" ? "The lesson waits for its turn." : `${doing}${total ? `: ${done} of ${total}` : ""}.`
  const progress = make("progress", { "aria-label": "The lesson" })
  if (total) {
    progress.max = total
    progress.value = Math.min(done, total)
  }
  return [make("p", {}, said, make("span", { class: "quiet" }, " You can go on asking meanwhile.")), progress]
}

async function learn() {
  problem = ""
  by("report").hidden = true
  job = { state: "waiting" }
  render()
  announce("The lesson begins.")
  try {
    const { job: id } = await call("POST", "learn")
    refreshWaiting() // the next lesson can be gathered meanwhile
    await followed(id)
  } catch (error) {
    ended(error.message)
  }
}

async function followed(id) {
  try {
    await follow(id)
  } catch (error) {
    ended(error.status === 404 ? STARTED_ANEW : error.message)
    await Promise.all([refresh(), refreshWaiting()])
  }
}

async function follow(id) {
  for (let turn = 0; ; turn += 1) {
    job = await get(`jobs/${encodeURIComponent(id)}`)
    if (job.state === "done" || job.state === "failed") break
    render()
    await pause(turn < 20 ? SOON : LATER)
  }
  const { state, error, report } = job
  await Promise.all([refresh(), refreshWaiting()])
  if (state === "failed") {
    const why = sentence(error ?? "no reason was given")
    ended(`The lesson failed. ${why} The classifier is as it was, and the pictures still wait.`)
  } else {
    ended("")
    tell(report)
  }
}

function ended(why) {
  job = null
  problem = why
  render()
}

function tell(report) {
  const place = by("report")
  const changed = report.lesson > 0
  const title = changed ? `Lesson ${report.lesson} is learned` : "Nothing new was learned"
  const back = button("Undo this lesson", () =>
    confirmed(back, "Go back to what it knew before this lesson?", "Undo it", "Keep it", async () => {
      await undo()
      const said = make("p", { tabindex: "-1" }, "The lesson is undone.")
      place.replaceChildren(said)
      said.focus()
    }),
  )
  place.replaceChildren(
    ...[
      make("h3", { tabindex: "-1" }, title),
      changed && make("p", { class: "quiet" }, `${several(report.pictures, "picture")} in ${seconds(report.seconds)}.`),
      named("New", report.new),
      named("More of", report.known),
      ...(changed ? judged(report) : []),
      ...table("Classes that suffer", ["Class", "Before", "Now"], report.suffered, each => [
        each.label,
        percent(each.before),
        percent(each.after),
      ]),
      ...table("Labels that look wrong", ["Picture", "Its label", "Looks like"], report.doubtful, each => [
        each.picture,
        each.label,
        each.looks_like,
      ]),
      report.duplicates > 0 &&
        make(
          "p",
          { class: "quiet" },
          `${several(report.duplicates, "copy", "copies")} of known pictures ${report.duplicates === 1 ? "was" : "were"} not learned again.`,
        ),
      ...table("Pictures that it knows as another class", ["Class", "Learned before as"], report.known_as, each => [
        each.label,
        each.learned_as,
      ]),
      ...table("Files that were left out", ["File", "Why"], report.skipped, each => [each.name, each.error]),
      make("div", { class: "row" }, make("a", { class: "button primary", href: "#ask" }, "Try it"), changed && back),
    ].filter(Boolean),
  )
  place.hidden = false
  place.querySelector("h3").focus({ preventScroll: true })
  place.scrollIntoView({ block: "nearest" })
  announce(`${title}. ${report.new.length ? `New: ${listed(report.new)}.` : ""}`)
}

const named = (what, names) =>
  names?.length > 0 &&
  make(
    "p",
    {},
    `${what}: `,
    names.slice(0, 30).flatMap(name => [make("span", { class: "chip" }, name), " "]),
    names.length > 30 && ` and ${names.length - 30} more`,
  )

// What is right of pictures that were held out, and of earlier ones before and after.
function judged({ accuracy, held_out: held, before, after }) {
  const row = (said, share) =>
    make("li", {}, make("span", { class: "of" }, said), bar(share), make("span", { class: "number" }, inShort(share)))
  const rows = []
  if (typeof accuracy === "number") rows.push(row(`Right of ${several(held, "new picture")} held out`, accuracy))
  if (typeof before === "number" && typeof after === "number")
    rows.push(row("Right of earlier pictures, before", before), row("Right of earlier pictures, now", after))
  if (!rows.length)
    return [make("p", { class: "quiet" }, "Too few pictures to judge it: five of a class are enough to hold one out.")]
  return [make("ol", { class: "best wide-names" }, rows)]
}

function table(title, heads, rows, cells) {
  if (!rows?.length) return []
  return [
    make("h4", {}, title),
    make(
      "div",
      { class: "wide", tabindex: "0", role: "region", "aria-label": title },
      make(
        "table",
        {},
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            heads.map(each => make("th", { scope: "col" }, each)),
          ),
        ),
        make(
          "tbody",
          {},
          rows.slice(0, 50).map(each =>
            make(
              "tr",
              {},
              cells(each).map(text => make("td", {}, text)),
            ),
          ),
        ),
      ),
    ),
  ]
}
