"""Namespaces, links and disambiguation pages of a wiki.

The header of a dump has the wiki's own names for its namespaces. The tables here add what headers
lack: language codes, older names, and how disambiguation pages are marked.
"""

import re
from dataclasses import dataclass, field
from html import unescape


def words(listing: str, separator: str | None = None) -> frozenset[str]:
    """Return the set of the words in a list that is written as one string."""
    return frozenset(listing.split(separator))


# MediaWiki's numbers of File and Media, and of Category.
FILE_KEYS, CATEGORY_KEYS = ("6", "-2"), ("14",)

# The English names work on every wiki, whatever its language.
CANONICAL_NAMESPACES = {
    "-2": "media", "-1": "special", "1": "talk", "2": "user", "3": "user talk", "4": "project",
    "5": "project talk", "6": "file", "7": "file talk", "8": "mediawiki", "9": "mediawiki talk",
    "10": "template", "11": "template talk", "12": "help", "13": "help talk", "14": "category",
    "15": "category talk",
}  # fmt: skip

# Old names of the file namespace that wikis still understand but no longer list in the header.
OLD_FILE_NAMES = words(
    "image|bild|datei|imagen|archivo|immagine|imagem|ficheiro|arquivo|fichier|afbeelding|bestand"
    "|plik|grafika|изображение|файл|зображення|kép|fájl|soubor|kuva|tiedosto|fil|billede|slika"
    "|resim|dosya|画像|ファイル|图像|文件|圖像|檔案|그림|파일|תמונה|קובץ|تصویر|پرونده|صورة|ملف"
    "|hình|tập tin|gambar|berkas|imatge|fitxer|dosiero|bildo|attēls|fails|vaizdas|pilt|fasciculus"
    "|imaxe|irudi|datoteka|датотека|слика|εικόνα|αρχείο|चित्र|ภาพ|ไฟล์",
    "|",
)

# Links to sister projects show their text or, without one, what follows the prefix.
SISTER_PROJECTS = words(
    "w|wikipedia|wikt|wiktionary|s|wikisource|q|wikiquote|b|wikibooks|n|wikinews|v|wikiversity"
    "|species|wikispecies|voy|wikivoyage|commons|c|m|meta|metawikipedia|d|wikidata|mw|foundation"
    "|wmf|imdbname|imdbtitle|rfc|doi|oeis",
    "|",
)

LANGUAGES = words(
    """aa ab ace ady af ak als alt am ami an ang anp ar arc ary arz as ast atj av avk awa ay az azb
    ba ban bar bat-smg bbc bcl bdr be be-tarask be-x-old bew bg bh bi bjn blk bm bn bo bpy br bs btm
    bug bxr ca cbk-zam cdo ce ceb ch cho chr chy ckb co cr crh cs csb cu cv cy da dag de dga din diq
    dk dsb dtp dty dv dz ee el eml en eo epo es et eu ext fa fat ff fi fiu-vro fj fo fon fr frp frr
    fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gsw gu guc gur guw gv ha hak haw he hi hif ho
    hr hsb ht hu hy hyw hz ia iba id ie ig igl ii ik ilo inh io is it iu ja jam jbo jp jv ka kaa kab
    kbd kbp kcg kg kge ki kj kk kl km kn ko koi kr krc ks ksh ku kus kv kw ky la lad lb lbe lez lfn
    lg li lij lld lmo ln lo lrc lt ltg lv lzh mad mai map-bms mdf mg mh mhr mi min minnan mk ml mn
    mni mnw mo mos mr mrj ms mt mus mwl my myv mzn na nah nan nap nb nds nds-nl ne new ng nia nl nn
    no nov nqo nr nrm nso nup nv ny oc olo om or os pa pag pam pap pcd pcm pdc pfl pi pih pl pms pnb
    pnt ps pt pwn qu rm rmy rn ro roa-rup roa-tara rsk ru ru-sib rue rup rw sa sah sat sc scn sco sd
    se sg sgs sh shi shn si simple sk skr sl sm smn sn so sq sr srn ss st stq su sv sw szl szy ta
    tay tcy tdd te tet tg th ti tk tl tlh tly tn to tokipona tp tpi tr trv ts tt tum tw ty tyv udm
    ug uk ur uz ve vec vep vi vls vo vro wa war wo wuu xal xh xmf yi yo yue za zea zgh zh zh-cfr
    zh-classical zh-cn zh-min-nan zh-tw zh-yue zu"""
)

# Templates that mark a disambiguation page: those listed, and any that ends in one of these words.
# Prefixes do not count: {{disambiguation needed}} and the like are used in ordinary articles.
DISAMBIGUATION_ENDINGS = ("disambig", "disambiguation")
DISAMBIGUATION_TEMPLATES = words(
    # English
    "disamb|dab|disambig-cleanup|disambiguation cleanup|disambig-cu|hndis|hndis-cleanup"
    "|human name disambiguation cleanup|geodis|geodab|numberdis|roadis|roaddis|schooldis"
    "|hospitaldis|callsigndis|letterdis|mathdab|mil-unit-dis|biodis|latindab|tla|tla-dab|3cc|2cc"
    "|4cc|5cc|4la|lnd"
    # German, Dutch, Nordic
    "|begriffsklärung|bkl|doorverwijspagina|dp|dpintro|dps|förgrening|grensida|gren|förgreningssida"
    "|flertydig|peker|pekerside|tobokstavsforkortelse|trebokstavsforkortelse|fleirtyding"
    "|aðgreining|fleiri týdningar|dubbelsinnig|neibetsjuttings|deurverwiespagina|homonymie"
    # Romance
    "|homonyme|homonymes|patronymie|paronymie|toponymie|sigle|desambiguación|desambiguacion"
    "|desambig|disambigua|disambigua2|desambiguação|dezambiguizare|dezambig|desambiguació"
    "|homónimos|dixebra|omonimeye|discretiva|omonimia"
    # Slavic and Baltic
    "|ujednoznacznienie|неоднозначность|многозначность|список однофамильцев"
    "|однофамильцы|багатозначність|неадназначнасць|неадназначнасьць|пояснение"
    "|пояснителна страница|вишезначна одредница|вишезначност|појаснување|rozcestník"
    "|rozlišovacia stránka|višeznačnica|razdvojba|čvor|razločitev|nuorodinis straipsnis"
    "|disambig2|nozīmju atdalīšana"
    # other Europe
    "|αποσαφήνιση|egyért|egyértelműsítő lap|täsmennyssivu|täpsustuslehekülg|täpsustus|argipen"
    "|apartigilo|gwahaniaethu|idirdhealán|kthjellim|anlam ayrımı|anlam ayrım|dəqiqləşdirmə"
    "|բազմիմաստություն|მრავალმნიშვნელოვანი|айрық|күп мәгънәләр|telplänov"
    # Asia
    "|曖昧さ回避|aimai|人名の曖昧さ回避|地名の曖昧さ回避|消歧义|消歧義|消歧义页|消歧義頁|搞清楚"
    "|동음이의|동음이의어|동명이인|동음이의어 문서|định hướng|trang định hướng"
    "|disambiguasi|nyahkekaburan|paglilinaw|แก้ความกำกวม|การแก้ความกำกวม"
    "|توضيح|صفحة توضيح|ابهام‌زدایی|ابهامزدایی|ضد ابہام"
    "|פירושונים|दुविधा|बहुविकल्पी|बहुविकल्पी शब्द|দ্ব্যর্থতা নিরসন|நெறிப்படுத்தல்|పేర్ల అయోమయ నివృత్తి"
    "|വിവക്ഷകൾ|नि:संदिग्धीकरण",
    "|",
)

_DISAMBIGUATION_TITLE = re.compile(
    r"[(（](?:disambiguation|disambig|begriffsklärung|homonymie|desambiguación|desambiguação"
    r"|desambiguació|disambigua|doorverwijspagina|ujednoznacznienie|значения|значення|значэнні"
    r"|пояснение|вишезначна одредница|појаснување|rozcestník|razločitev|višeznačnica|razdvojba"
    r"|olika betydelser|flertydig|andre betydninger|täsmennyssivu|täpsustus|egyértelműsítő lap"
    r"|dezambiguizare|αποσαφήνιση|anlam ayrımı|dəqiqləşdirmə|apartigilo|argipena|曖昧さ回避"
    r"|消歧义|消歧義|동음이의|định hướng|disambiguasi|nyahkekaburan|แก้ความกำกวม|توضيح|ابهام‌زدایی"
    r"|פירושונים|बहुविकल्पी|দ্ব্যর্থতা নিরসন)[)）]$",
    re.IGNORECASE,
)
_TEMPLATE_NAME = re.compile(r"\{\{\s*([^\s|{}\[\]<][^|{}\[\]<\n]{0,60})")
_DISAMBIGUATION_WORD = re.compile("__(?:DISAMBIG|BEGRIFFSKLÄRUNG|DISAMB)__")
# In any language: #WORD [[target]] at the start, sometimes with two words or a colon.
_REDIRECT = re.compile(r"\s*#\s?[^\s\[\]{}|<>#*:]+(?:\s[^\s\[\]{}|<>#*:]+)?\s*:?\s*\[\[")

_FILE_NAME = re.compile(
    r"\.(?:jpe?g|png|gif|svg|tiff?|og[gv]|webm|webp|pdf|djvu|mid|wav)\s*$", re.I
)
_NAMESPACE = re.compile(r'<namespace\s[^>]*?key="(-?\d+)"[^>]*>([^<]*)</namespace>')
_LANGUAGE = re.compile(r"""<mediawiki\s[^>]*?xml:lang=["']([\w-]+)["']""")


def normal(name: str) -> str:
    """Normalize the name of a namespace or template, for which case and "_" do not matter."""
    return name.replace("_", " ").strip().lower()


@dataclass(frozen=True)
class Site:
    """The namespaces of a wiki, which give its links their meaning."""

    language: str = "en"
    """Language code of the wiki, from the dump."""
    namespaces: frozenset[str] = frozenset(CANONICAL_NAMESPACES.values())
    """Normalized names of all namespaces except the main one."""
    files: frozenset[str] = field(default=OLD_FILE_NAMES | {"file", "media"})
    """Names of the file namespaces, whose links show an image."""
    categories: frozenset[str] = frozenset({"category"})
    """Names of the category namespaces, whose links show nothing."""

    @classmethod
    def from_header(cls, header: str) -> "Site":
        """Read the header of a dump, which is everything before the first page."""
        names = [(key, normal(unescape(name))) for key, name in _NAMESPACE.findall(header)]
        names = [(key, name) for key, name in names if name and key != "0"]
        names += CANONICAL_NAMESPACES.items()
        language = _LANGUAGE.search(header)
        return cls(
            language=language[1] if language else "en",
            namespaces=frozenset(name for _, name in names),
            files=OLD_FILE_NAMES | {name for key, name in names if key in FILE_KEYS},
            categories=frozenset(name for key, name in names if key in CATEGORY_KEYS),
        )

    def is_article_title(self, title: str) -> bool:
        """Return whether a title is in the main namespace, for dumps without `<ns>`."""
        prefix, colon, _ = title.partition(":")
        return not colon or normal(prefix) not in self.namespaces


def render_link(content: str, site: Site) -> str:
    """Return the text that a link shows, given its content "target|text"."""
    target, pipe, text = content.partition("|")
    if "\n\n" in content:  # not closed: the brackets at the end belong to another link
        head, gap, rest = content.partition("\n\n")
        return render_link(head, site) + gap + rest
    text = text.strip("\n")
    if target.lstrip().startswith(("http://", "https://", "//")):
        return target.partition(" ")[2] + pipe + text
    prefix, colon, rest = target.partition(":")
    if colon:
        namespace = normal(prefix)
        is_file_name = _FILE_NAME.search(rest) and namespace and " " not in namespace
        if namespace in site.files or is_file_name:
            return ""
        if namespace in site.categories or namespace in LANGUAGES:
            return ""
        if not namespace or namespace in SISTER_PROJECTS:
            target = rest.rpartition(":")[2]
    shown = text if text.strip() else target.lstrip("#").replace("_", " ")
    return shown.replace("|", "&#124;")


def is_redirect(wikitext: str) -> bool:
    """Return whether a page is a redirect, from its text."""
    return _REDIRECT.match(wikitext) is not None


def is_disambiguation(title: str, wikitext: str) -> bool:
    """Return whether a page is a disambiguation page."""
    templates = set(map(normal, _TEMPLATE_NAME.findall(wikitext)))
    return (
        _DISAMBIGUATION_TITLE.search(title) is not None
        or not templates.isdisjoint(DISAMBIGUATION_TEMPLATES)
        or any(name.endswith(DISAMBIGUATION_ENDINGS) for name in templates)
        or _DISAMBIGUATION_WORD.search(wikitext) is not None
    )
