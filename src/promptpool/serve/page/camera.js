// The camera, in a window of the page; every picture that is taken goes to whoever opened it.

import { by } from "./parts.js"
import { drawn } from "./small.js"

const WHY = {
  NotAllowedError:
    "The camera is not allowed here. Allow it in the browser's settings for this page, or choose pictures.",
  NotFoundError: "There is no camera. Choose pictures or drop them here.",
  NotReadableError: "Another program uses the camera. Close it there and try again.",
}
const INSECURE =
  "Browsers give the camera to https and localhost only. Choose pictures instead; a telephone offers its camera there."

let stream = null
let take = null
let taken = 0

// Opens the camera; the answer is "" or why that is impossible.
export async function openCamera(give) {
  if (!navigator.mediaDevices?.getUserMedia) return isSecureContext ? WHY.NotFoundError : INSECURE
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } })
  } catch (error) {
    return WHY[error.name] ?? `The camera does not work: ${error.message || error.name}`
  }
  take = give
  taken = 0
  const view = by("camera-view")
  view.srcObject = stream
  by("camera-said").textContent = "Hold it still, then take a picture."
  by("camera").showModal()
  await view.play()
  return ""
}

export function prepareCamera() {
  const dialog = by("camera")
  by("camera-close").addEventListener("click", () => dialog.close())
  by("camera-take").addEventListener("click", shoot)
  dialog.addEventListener("close", () => {
    stream?.getTracks().forEach(track => track.stop())
    by("camera-view").srcObject = stream = null
  })
}

async function shoot() {
  const blob = await drawn(by("camera-view"), 4096, true)
  if (!blob) return
  taken += 1
  const time = new Date().toTimeString().slice(0, 8).replaceAll(":", ".")
  take(new File([blob], `camera ${time} ${taken}.jpg`, { type: "image/jpeg" }))
  by("camera-said").textContent = taken === 1 ? "One picture is taken." : `${taken} pictures are taken.`
}
