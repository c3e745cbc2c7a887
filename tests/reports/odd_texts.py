"""Texts that have broken pages and terminals before."""

ODD_TEXTS = {
    "script": "<script>document.title = 'owned'</script> <img src=x onerror=alert(1)> kata",
    "attribute": "\" onmouseover=\"alert(1)\" ' style='color:red' kata",
    "template": "$style {model} %s ${heat} kata",
    "special": "[CLS] kata [MASK] lodi [SEP] <mask> </s>",
    "long word": "k" * 700 + " kata",
    "many subwords": "kata" * 200,
    "right to left": "שלום עולם kata مرحبا بالعالم",
    "override": "kata \u202elodi\u202c \u2066mifu\u2069",
    "emoji": "kata 👩‍👩‍👧‍👦 lodi 🇫🇮🙂",
    "accents": "Crème BRÛLÉE ﬁne e\u0301",
    "empty": "",
    "spaces": " \n\t  ",
    "layout": "  Kata\n\n\tlodi   mifu\r\n",
    "controls": "ka\x00ta\x07 \x08lodi\x7f\x9b31m",
    "escape": "\x1b[31mkata\x1b]0;title\x07 \x1b[2J lodi",
    "lone surrogate": "kata \ud83d lodi",
    "invisible": "kata\u200b\u00ad\ufeff lodi\u2028mifu",
}
