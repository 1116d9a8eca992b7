"""Which characters are in which set.

What is particular here:
- The three sets draw on Latin, Greek and Cyrillic letters, digits and well-known signs. The characters for
  pre-training and for validation are of other scripts, or signs that look like none of the former.
- No two characters of one set differ only by size, place or case.
- Every character is in a font that comes with matplotlib.
"""

from __future__ import annotations

# The signs are meant to look like letters.
# ruff: noqa: RUF001

GLYPHS_100 = "AbdEGHJKMNQRtUWXYZαβδζλμξ♦ΓΘΣΦΨΩБДЖЛЦЧШЭЮЯ234578?&@#%$€£¥§¶÷∞→∫∂≈∴≠★♥♠♪☎☂☃☺☀☾✂✈✉⚓♞♜♛☯☠☢☮♻⌘⌂✓✿❄☁⚡⚑⚖✎⚙"

STYLED_50 = "AEGHKMNRUWXYZβδλξ♠ΘΣΨΩБДЖЮЯ23457?&€£§∞★♥♪☂✈✓♞☎☾⌂→⚑"

FIVE = {
    "digits": "0123456789",
    "greek": "ΓΔΘΛΞΠΣΦΨΩ",
    "pieces": "♚♛♜♝♞♟♠♥♣♦",
    "arrows": "←↑→↓↔↕↶↷↯⇄",
    "fabric": "☀☁☂☃★☾✿❄♪✈",
}

PRETRAINING = (
    "¢«»؆“‣‸‹›※⁁⁏⁐⁖⁘⁙↘↽⇖⇪⇫⇰⇱⇲∟∠∡∿≎≏≤≥≦≧≪≫≶≷≺≻≼≽⊃⊆⊇⊊⊋⊏⊓⊔⊦⊧⊩⊪⊫⊰⊱⊳⊿⋋"
    "⋌⋐⋑⋒⋔⋖⋗⋘⋛⋜⋝⋞⋟⋦⋧⋲⋳⋹⋺⋻⋽⌑⌒⌚⌜⌝⌟⌣⌤⌥⌦⌫⌬⌮⍼⍽⎛⎝⎞⎡⎬⎴⎵⎶⏝⏢⏥⏧□▣▤▥▽◀◇◊◐◑◒◔"
    "◘◜◝◟◡◢◤◧◨◭◸◹◺☋☍☕☖☚☛☜☝☞☟☣☥☭☿♅♊♋♌♍♎♏♐♑♓♨♭♮♴♿⚂⚅⚚⚠⚢⚣⚤⚥⚦⚧⚰⚴⚶⚷⚸⛀⛁⛃"
    "✍✜✞✠✡❍❞❨❩❬❭➚➩➷➹➺⟀⟃⟄⟇⟈⟉⟒⟓⟔⟕⟖⟗⟤⟥⤣⤤⤦⤳⤶⤷⤻⤼⤽⥦⥺⥼⥽⦂⦇⦈⦉⦑⦒⦕⦖⦛⦝⦞⦟⦡⦣⦤⦥⦦"
    "⦧⦪⦭⦮⦱⦲⦽⧂⧉⧋⧏⧔⧕⧡⧦⧨⧩⧮⧵⧺⧻⨇⨈⨟⨭⨮⨰⨲⨳⨴⨵⨷⨼⨽⨾⩀⩁⩃⩄⩅⩆⩎⩏⩐⩒⩗⩘⩙⩚⩜⩝⩡⩢⩣⩤⩥⩬⩭⩽⩾"
    "⪃⪄⪑⪒⪕⪖⪝⪟⪠⪤⪥⪩⪰⪱⪲⪽⪿⫀⫃⫅⫆⫋⫌⫍⫏⫐⫓⫔⫘⫛⫣⫥⫦⫬⫭⬂⬃⬓⬕⬖⬗⬙⬠⬭⬲⬿⭃⭄⭅⭆⭔〒〰の🐭😾ԲԵԶԷ"
    "ԸԹԺԻԾԿՀՂՃՆՇՊՌՎՔՖ՛՜՝՟էթկչպֆאבגדלעףצקרשת״؛بتثجخدرزسشطغفقكلمنوى"
    "ي٫ٯټڂڈډڋڑړڕڠڡڤکڪڭڮگڳڴڵڸںھۆێېﹳߎߏߐߒߓߔߖߚߜߞߟߢߣߤߥຂຄງຈຊຍຕຖທນຜຝມຢຣລ"
    "ວສຫຮຯະາຽເແໃໄႢႥႧႫႰႲႵႼႿჀჁჄჅბდლპრუფქწჭჯჳჴჺⴀⴃⴅⴐⴒⴓⴕⴟⴡⴢⴤᐅᐊᐯᐸᑕᒊᒐᒣᒽᓂ"
    "ᓄᓕᓗᓚᓭᓯᔅᔇᔐᔑᔕᔨᔪᔭᕈᕋᕓᕗᕤᕪᕴᕵᕷᕹᖍᖕᖖᖠᖢᖤᖧᖨᖪᖬⵁⵂⵄⵈⵓⵖⵛⵣ"
)

VALIDATION = "¬Գ׃מءذڻߝພႮᑍᓀᓇᓬᔦᕍᕒᕙ‟⇗⊨⊲⋚⌄⌓⌕⌭◥☈♃⚇⚵⛂✌⤧⥧⪣⪼⬒ⴏⴝⴼⵆⵋⵍⵒⵘⵤ"
