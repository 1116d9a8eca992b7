// The history of versions, and the way back.

import { announce, button, by, confirmed, make } from "./parts.js"
import { call, get } from "./server.js"
import { refresh } from "./known.js"

const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", hour: "2-digit", minute: "2-digit" })

// Go back one version; the answer is its number.
export async function undo() {
  const { version } = await call("POST", "undo")
  await refresh()
  announce(`It is version ${version} again.`)
  return version
}

export async function showVersions() {
  const { present, versions } = await get("versions")
  const newest = [...versions].sort((one, other) => other.version - one.version)
  const earlier = newest.find(each => each.version < present)
  const back =
    earlier &&
    button(`Go back to version ${earlier.version}`, () =>
      confirmed(
        back,
        `Undo “${newest.find(each => each.version === present)?.what ?? `version ${present}`}” and be version ${earlier.version} again?`,
        "Go back",
        "Stay",
        async () => {
          await undo()
          by("versions").querySelector("h3").focus()
        },
      ),
    )
  by("versions").replaceChildren(
    make("h3", { tabindex: "-1" }, "Versions"),
    make(
      "ol",
      { class: "versions" },
      newest.map(each =>
        make(
          "li",
          { "aria-current": each.version === present ? "true" : false },
          make("span", { class: "chip" }, String(each.version)),
          make(
            "div",
            {},
            make(
              "p",
              {},
              each.what || "A change",
              each.version === present && make("span", { class: "good now" }, "now"),
            ),
            each.when &&
              make("p", { class: "quiet" }, make("time", { datetime: each.when }, day.format(new Date(each.when)))),
          ),
        ),
      ),
    ),
    back ? make("div", {}, back) : make("p", { class: "quiet" }, "There is no earlier version to go back to."),
  )
}
