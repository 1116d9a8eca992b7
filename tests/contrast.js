// The texts of a page that can hardly be read: whose contrast with what lies behind them is below 4.5 (WCAG, level AA).
() => {
  const numbers = text =>
    text.match(/[\d.]+/g).map((each, place) => each * (text.startsWith("color") && place < 3 ? 255 : 1))
  const over = ([red, green, blue, share = 1], under) =>
    [red, green, blue].map((each, place) => each * share + under[place] * (1 - share))
  const behind = element =>
    element ? over(numbers(getComputedStyle(element).backgroundColor), behind(element.parentElement)) : [255, 255, 255]
  const linear = value => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  const light = ([red, green, blue]) =>
    0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255)
  const found = []
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter(each => each.nodeType === 3).map(each => each.data.trim()).join("")
    const seen = element.checkVisibility({ opacityProperty: true, visibilityProperty: true })
    if (!text || !seen || element.closest(":disabled, .hidden, .blank, .skip, noscript, option, .none")) continue
    const ground = behind(element)
    const [one, other] = [light(over(numbers(getComputedStyle(element).color), ground)), light(ground)]
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)} ${text.slice(0, 40)}`)
  }
  return found
}
