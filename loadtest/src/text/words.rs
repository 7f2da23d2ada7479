//! The words that seeded text is made of, by kind of text.
//!
//! Only data. The words are chosen for their bytes: two, three and four bytes a character, combining marks, wide
//! emoji, letters that stand between ASCII ones.

/// English words that are one token each (with the blank before them).
pub(crate) const COMMON: &[&str] = &[
    "the", "a", "of", "to", "and", "in", "is", "it", "that", "for", "as", "with", "was", "on", "are", "by", "this", "not", "be", "from",
    "or", "an", "which", "each", "has", "when", "more", "one", "two", "stream", "leader", "group", "answer", "model", "token", "request",
];

/// English words that are several tokens.
pub(crate) const LONGER: &[&str] = &[
    "replacement",
    "gathered",
    "harvest",
    "mountains",
    "whispering",
    "lanterns",
    "orchard",
    "sentence",
    "because",
    "another",
    "travelled",
    "quietly",
    "between",
    "understood",
    "carefully",
    "remembered",
    "afternoon",
    "seventeen",
    "bridges",
    "winter",
    "northern",
    "paper",
    "instrument",
    "simple",
    "measured",
    "returning",
    "forgotten",
    "yesterday",
    "painted",
    "station",
    "borrowed",
    "window",
    "engine",
    "careful",
    "morning",
    "garden",
    "silver",
    "number",
    "travel",
    "letters",
    "harbour",
    "weather",
    "kitchen",
    "journey",
    "distance",
];

/// Pieces that longer words are cut into, so that a word is a few tokens and not one for each letter.
pub(crate) const PIECES: &[&str] = &[
    "re", "pla", "ce", "ment", "ga", "the", "red", "har", "vest", "mo", "un", "tain", "whis", "per", "ing", "lan", "tern", "or", "chard",
    "sen", "ten", "be", "cause", "an", "other", "tra", "vel", "led", "qui", "et", "ly", "tween", "der", "stood", "care", "ful", "mem",
    "ber", "after", "noon", "seven", "teen", "brid", "ges", "win", "ter", "nor", "ern", "pa", "in", "stru", "sim", "ple", "mea", "sur",
    "tur", "for", "got", "yes", "day", "pain", "ted", "sta", "tion", "bor", "row", "dow", "eng", "ine", "mor", "ning", "gar", "den", "sil",
    "ver", "num", "let", "ters", "bour", "wea", "kit", "chen", "jour", "ney", "dis", "tance", "er", "th", "st", "ed", "on", "en", "at",
];

/// Tokens of white space, punctuation and code.
pub(crate) const MARKS: &[&str] = &[
    "\n\n",
    "\n    ",
    "\n        ",
    "  ",
    "    ",
    "        ",
    "\":",
    "\",",
    "\", \"",
    "{\n",
    "}\n",
    "},\n",
    "):\n",
    "==",
    " =",
    " ==",
    "()",
    " return",
    "return",
    " if",
    "if",
    "def",
    " in",
    " None",
    "None",
    "...",
    ", ",
    " {",
    " [",
    " \"",
    "self",
    "self.",
    "import",
    "city",
    "days",
    "note",
    "name",
    "arguments",
];

/// Scripts with three bytes a character and no blank between words.
pub(crate) const CJK: &[&str] = &[
    "今天",
    "天气",
    "很好",
    "我们",
    "一起",
    "学习",
    "模型",
    "回答",
    "問題",
    "東京",
    "電車",
    "図書館",
    "ありがとう",
    "さようなら",
    "カタカナ",
    "언어",
    "서울",
    "학교",
    "山水",
    "城市",
    "火车",
    "音乐",
    "𠮷野家",
    "漢字",
];

/// Words of other scripts: combining marks, right to left, two-byte letters.
pub(crate) const WORLD: &[&str] = &[
    "हिन्दी",
    "में",
    "एक",
    "नमस्ते",
    "भारत",
    "שלום",
    "עולם",
    "مرحبا",
    "العالم",
    "привет",
    "мир",
    "Zürich",
    "naïve",
    "façade",
    "jalapeño",
    "Škoda",
    "ελληνικά",
    "ไทย",
    "தமிழ்",
];

/// Emoji: four bytes, with joiners, modifiers and flags.
pub(crate) const EMOJI: &[&str] = &["🚒", "😀", "👩‍🚀", "👍🏽", "🇨🇭", "🎉", "🧪", "❤️", "🏳️‍🌈", "🍜"];

/// Names used in generated code.
pub(crate) const NAMES: &[&str] = &["x", "total", "rows", "value", "item", "count", "leader", "text", "left", "key"];

/// Cities for tool calls and records.
pub(crate) const CITIES: &[&str] = &["Zürich", "Oslo", "東京", "São Paulo", "Kyiv", "Lyon", "Malmö", "Delhi"];
