// Requests to the server that this page came from, and to no other.

import { sentence } from "./parts.js"

class Refused extends Error {
  constructor(why, status = 0) {
    super(why)
    this.status = status
  }
}

export const connection = new EventTarget() // "lost" with a sentence, "back"
const PAUSE = 2000
const LONGEST = 10 // seconds to wait for a busy server; who asks for more says why
let waitingForIt = null

export const address = path => new URL(path.replace(/^\//, ""), document.baseURI).href
export const get = path => call("GET", path)

// The answer to a request. One that changes nothing when it is sent twice is `patient`: it waits until the server is there.
export async function call(method, path, body, patient = method === "GET") {
  for (;;) {
    const response = await sent(method, path, body, patient)
    if (response === null) continue
    const seconds = Number(response.headers.get("Retry-After")) || 2
    if (patient && [429, 503].includes(response.status) && seconds <= LONGEST) {
      await pause(1000 * seconds)
      continue
    }
    const answer = await read(response)
    if (response.ok) return answer
    throw new Refused(reason(answer, response), response.status)
  }
}

// The answer as a file, for exports.
export async function download(path) {
  const response = await sent("GET", path, undefined, false)
  if (!response.ok) throw new Refused(reason(await read(response), response), response.status)
  const named = /filename="?([^";]+)/.exec(response.headers.get("Content-Disposition") ?? "")
  return { blob: await response.blob(), name: named?.[1] ?? null }
}

async function sent(method, path, body, patient) {
  const headers = { "X-Promptpool": "1" }
  const form = body instanceof FormData
  if (body !== undefined && !form) headers["Content-Type"] = "application/json"
  try {
    return await fetch(address(path), {
      method,
      headers,
      body: form || body === undefined ? body : JSON.stringify(body),
    })
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    const back = lost("The server does not answer. What you did is kept here, and it is asked again until it is back.")
    if (!patient) throw new Refused("The server does not answer; look whether this happened once it is back.")
    await back
    return null
  }
}

async function read(response) {
  try {
    return response.status === 204 ? null : await response.json()
  } catch {
    return null
  }
}

function reason(answer, response) {
  if (typeof answer?.error === "string") return sentence(answer.error)
  if (response.status === 401) return "The server wants its token: open the address that it printed when it started."
  return `The server answered ${response.status} ${response.statusText}`.trim() + "."
}

// Say once that the server is gone, and look for it until it is ready again.
function lost(why) {
  if (waitingForIt) return waitingForIt
  connection.dispatchEvent(new CustomEvent("lost", { detail: why }))
  waitingForIt = (async () => {
    for (;;) {
      await pause(PAUSE)
      try {
        if ((await fetch(address("ready"))).ok) break
      } catch {
        /* not yet */
      }
    }
    waitingForIt = null
    connection.dispatchEvent(new Event("back"))
  })()
  return waitingForIt
}

export const pause = milliseconds => new Promise(done => setTimeout(done, milliseconds))
