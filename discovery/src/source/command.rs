//! Reads an engine's command line: served names and TLS flags, also inside the string of a shell.
//!
//! Owns: splitting a shell string into words far enough to find flags. Must not: run or fully expand anything; a value that cannot be
//! known (an unset variable, a command substitution) yields no name, and `/v1/models` tells later.
//! Facts: operator contract section 7; vLLM's parser takes several names after one flag, `=` and underscores in flags.

use crate::fact::Str;

/// Names of one deployment that are kept at most; an engine with more adapters is not a pool's business.
pub(crate) const MAX_NAMES: usize = 256;
/// Shell strings inside shell strings (`bash -c "… sh -c '…'"`).
const MAX_DEPTH: u8 = 3;
const NAME_FLAG: &str = "--served-model-name";
const TLS_FLAGS: [&str; 2] = ["--ssl-certfile", "--ssl-keyfile"];

/// What a command line says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CommandLine {
    /// Served names, in order, without repeats; of several flags the last one counts, as in the engines' parser.
    pub(crate) names: Vec<Str>,
    /// A TLS certificate or key is given.
    pub(crate) https: bool,
}

/// Reads the words of `command` and `args`; `env` gives the literal values of variables.
pub(crate) fn read<'a>(words: impl IntoIterator<Item = &'a str>, env: &dyn Fn(&str) -> Option<String>) -> CommandLine {
    let words: Vec<Word> = words.into_iter().map(|word| Word::Text(kubernetes_expand(word, env))).collect();
    let mut line = CommandLine::default();
    scan(&words, env, 0, &mut line);
    line
}

#[derive(Debug, PartialEq)]
enum Word {
    Text(Option<String>),
    /// `;`, `&&`, `|`, a newline, a redirection: ends a command.
    End,
}

fn scan(words: &[Word], env: &dyn Fn(&str) -> Option<String>, depth: u8, line: &mut CommandLine) {
    for (at, word) in words.iter().enumerate() {
        let Word::Text(Some(text)) = word else { continue };
        if depth < MAX_DEPTH && text.contains(char::is_whitespace) && mentions_flag(text) {
            scan(&shell_words(text, env), env, depth + 1, line);
            continue;
        }
        let (flag, value) = text.split_once('=').map_or((text.as_str(), None), |(flag, value)| (flag, Some(value)));
        let flag = flag.replace('_', "-");
        if TLS_FLAGS.contains(&flag.as_str()) {
            line.https = true;
        } else if flag == NAME_FLAG {
            let names = match value {
                Some(value) => vec![Str::from(value)],
                None => values_after(&words[at + 1..]),
            };
            let mut kept: Vec<Str> = Vec::new();
            for name in names.into_iter().filter(|name| !name.is_empty()).take(MAX_NAMES) {
                if !kept.contains(&name) {
                    kept.push(name);
                }
            }
            line.names = kept;
        }
    }
}

fn mentions_flag(text: &str) -> bool {
    text.contains("--served") || text.contains("--ssl")
}

/// Words up to the next flag or the end of the command; a value that is not known is skipped.
fn values_after(words: &[Word]) -> Vec<Str> {
    words
        .iter()
        .take_while(|word| match word {
            Word::Text(text) => !text.as_deref().is_some_and(|text| text.starts_with('-')),
            Word::End => false,
        })
        .filter_map(|word| match word {
            Word::Text(text) => text.as_deref().map(Str::from),
            Word::End => None,
        })
        .collect()
}

/// Kubernetes expands `$(NAME)` in command and args before any shell sees them; an unknown reference stays as it is.
fn kubernetes_expand(word: &str, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find("$(") {
        let (before, reference) = rest.split_at(at);
        out.push_str(before);
        let known = reference.find(')').and_then(|end| Some((end, env(&reference[2..end])?)));
        match known {
            Some((end, value)) => {
                out.push_str(&value);
                rest = &reference[end + 1..];
            }
            None => {
                out.push_str("$(");
                rest = &reference[2..];
            }
        }
    }
    out.push_str(rest);
    Some(out)
}

/// Splits a POSIX shell string into words and command ends. A word with an expansion that is not known is `Text(None)`.
fn shell_words(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Vec<Word> {
    let mut shell = Shell { words: Vec::new(), word: None, known: true, env };
    let mut chars = text.chars().peekable();
    while let Some(next) = chars.next() {
        match next {
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(escaped) => shell.push(escaped),
            },
            '\'' => {
                shell.open();
                chars.by_ref().take_while(|inner| *inner != '\'').for_each(|inner| shell.push(inner));
            }
            '"' => {
                shell.open();
                while let Some(inner) = chars.next() {
                    match inner {
                        '"' => break,
                        '\\' => match chars.next() {
                            Some(escaped @ ('"' | '\\' | '$' | '`')) => shell.push(escaped),
                            Some('\n') | None => {}
                            Some(other) => {
                                shell.push('\\');
                                shell.push(other);
                            }
                        },
                        '$' => shell.expand(&mut chars),
                        '`' => shell.unknown(),
                        other => shell.push(other),
                    }
                }
            }
            '$' => shell.expand(&mut chars),
            '`' => shell.unknown(),
            '#' if shell.word.is_none() => {
                while chars.peek().is_some_and(|inner| *inner != '\n') {
                    chars.next();
                }
            }
            '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => shell.end_command(),
            space if space.is_whitespace() => shell.end_word(),
            other => shell.push(other),
        }
    }
    shell.end_command();
    shell.words
}

struct Shell<'a> {
    words: Vec<Word>,
    word: Option<String>,
    known: bool,
    env: &'a dyn Fn(&str) -> Option<String>,
}

impl Shell<'_> {
    fn open(&mut self) {
        self.word.get_or_insert_default();
    }

    fn push(&mut self, next: char) {
        self.word.get_or_insert_default().push(next);
    }

    fn unknown(&mut self) {
        self.open();
        self.known = false;
    }

    fn end_word(&mut self) {
        if let Some(word) = self.word.take() {
            self.words.push(Word::Text(self.known.then_some(word)));
        }
        self.known = true;
    }

    fn end_command(&mut self) {
        self.end_word();
        self.words.push(Word::End);
    }

    /// `$NAME`, `${NAME}` and `${NAME:-default}`; anything else after `$` is not known.
    fn expand(&mut self, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
        let in_braces = chars.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(next) = chars.next_if(|next| next.is_ascii_alphanumeric() || *next == '_') {
            name.push(next);
        }
        let mut default = None;
        if in_braces {
            let rest: String = chars.by_ref().take_while(|next| *next != '}').collect();
            default = rest.strip_prefix(":-").or_else(|| rest.strip_prefix('-')).map(str::to_owned);
        }
        match (self.env)(&name).or(default) {
            Some(value) if !name.is_empty() => value.chars().for_each(|next| self.push(next)),
            _ => self.unknown(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], names: &[&str], https: bool) {
        let env = |name: &str| (name == "MODEL").then(|| "from-env".to_owned());
        let line = read(words.iter().copied(), &env);
        let found: Vec<&str> = line.names.iter().map(|name| &**name).collect();
        assert_eq!((found.as_slice(), line.https), (names, https), "{words:?}");
    }

    #[test]
    fn plain_words() {
        check(&["vllm", "serve", "/m"], &[], false);
        check(&["vllm", "serve", "/m", "--served-model-name", "a"], &["a"], false);
        check(&["vllm", "serve", "/m", "--served-model-name", "a", "b", "a", "--port", "1"], &["a", "b"], false);
        check(&["x", "--served-model-name=a/b", "--ssl-keyfile", "k"], &["a/b"], true);
        check(&["x", "--served_model_name=a", "--ssl_certfile=c"], &["a"], true);
        check(&["x", "--served-model-name", "a", "--served-model-name", "b"], &["b"], false);
        check(&["x", "--served-model-name", "$(MODEL)"], &["from-env"], false);
        check(&["x", "--served-model-name"], &[], false);
    }

    #[test]
    fn shell_strings() {
        let sh = |text: &str, names: &[&str]| check(&["/bin/sh", "-c", text], names, false);
        sh("exec vllm serve /m --served-model-name demo --port 8000\n", &["demo"]);
        sh("vllm serve /m --served-model-name 'one two' \"three\" && sleep 1", &["one two", "three"]);
        sh("vllm serve /m \\\n  --served-model-name=demo \\\n  --port 8000", &["demo"]);
        sh("# --served-model-name wrong\nvllm serve --served-model-name right; echo x", &["right"]);
        sh("vllm serve --served-model-name demo>log", &["demo"]);
        sh("vllm serve --served-model-name \"$MODEL\" ${OTHER:-second}", &["from-env", "second"]);
        sh("vllm serve --served-model-name $UNKNOWN", &[]);
        sh("vllm serve --served-model-name `cat name`", &[]);
        sh("bash -c \"vllm serve --served-model-name 'in ner' deep\"", &["in ner", "deep"]);
        sh("if x; then vllm serve --served-model-name a; else vllm serve --headless; fi", &["a"]);
        sh("vllm serve --served-model-name 'open", &["open"]);
    }

    #[test]
    fn names_are_bounded() {
        let many: Vec<String> = (0..1000).map(|n| format!("n{n}")).collect();
        let words = std::iter::once("--served-model-name").chain(many.iter().map(String::as_str));
        assert_eq!(read(words, &|_| None).names.len(), MAX_NAMES);
    }
}
