//! As much of Rust's syntax as the rules need: comments and strings, functions by their braces, two kinds of table.

/// One source file.
pub(crate) struct Source {
    /// Relative to the root of the tree.
    pub(crate) path: String,
    /// As it stands in the file.
    pub(crate) text: String,
    /// With comments and the insides of strings blanked, line for line.
    pub(crate) code: String,
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: String,
    /// The line it starts in.
    pub(crate) at: usize,
    /// Lines of its body that hold code.
    pub(crate) lines: usize,
}

/// A row of the API table.
#[derive(Debug)]
pub(crate) struct ApiRow {
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) versions: (String, String),
    pub(crate) module: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Code,
    Line,
    Block(usize),
    Text,
    Raw(usize),
}

/// Blanks comments and the insides of strings and characters; newlines stay.
pub(crate) fn blank(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let (mut at, mut inside) = (0, Inside::Code);
    while at < letters.len() {
        let (next, now, kept) = step(&letters, at, inside);
        for letter in &letters[at..next] {
            out.push(if kept || *letter == '\n' {
                *letter
            } else {
                ' '
            });
        }
        (at, inside) = (next, now);
    }
    out
}

/// One token's worth: where it ends, where we are then, and whether it is code.
fn step(letters: &[char], at: usize, inside: Inside) -> (usize, Inside, bool) {
    let two: (char, char) = (letters[at], letters.get(at + 1).copied().unwrap_or('\n'));
    match inside {
        Inside::Line if two.0 == '\n' => (at + 1, Inside::Code, true),
        Inside::Line => (at + 1, Inside::Line, false),
        Inside::Block(depth) if two == ('*', '/') => (
            at + 2,
            if depth == 1 {
                Inside::Code
            } else {
                Inside::Block(depth - 1)
            },
            false,
        ),
        Inside::Block(depth) if two == ('/', '*') => (at + 2, Inside::Block(depth + 1), false),
        Inside::Block(depth) => (at + 1, Inside::Block(depth), false),
        Inside::Text if two.0 == '\\' => ((at + 2).min(letters.len()), Inside::Text, false),
        Inside::Text if two.0 == '"' => (at + 1, Inside::Code, true),
        Inside::Text => (at + 1, Inside::Text, false),
        Inside::Raw(hashes) if ends_raw(letters, at, hashes) => {
            (at + 1 + hashes, Inside::Code, true)
        }
        Inside::Raw(hashes) => (at + 1, Inside::Raw(hashes), false),
        Inside::Code => step_code(letters, at, two),
    }
}

fn step_code(letters: &[char], at: usize, two: (char, char)) -> (usize, Inside, bool) {
    match two {
        ('/', '/') => (at + 2, Inside::Line, false),
        ('/', '*') => (at + 2, Inside::Block(1), false),
        ('"', _) => (at + 1, Inside::Text, true),
        ('r', '"' | '#')
            if !at
                .checked_sub(1)
                .is_some_and(|before| is_word(letters[before]) && letters[before] != 'b') =>
        {
            let hashes = letters[at + 1..]
                .iter()
                .take_while(|letter| **letter == '#')
                .count();
            match letters.get(at + 1 + hashes) {
                Some('"') => (at + 2 + hashes, Inside::Raw(hashes), true),
                _ => (at + 1, Inside::Code, true),
            }
        }
        ('\'', '\\') => {
            let end = letters[at + 3..]
                .iter()
                .position(|letter| *letter == '\'')
                .map_or(at + 3, |offset| at + 4 + offset);
            (end, Inside::Code, false)
        }
        ('\'', _) if letters.get(at + 2) == Some(&'\'') => (at + 3, Inside::Code, false),
        _ => (at + 1, Inside::Code, true),
    }
}

fn ends_raw(letters: &[char], at: usize, hashes: usize) -> bool {
    letters[at] == '"'
        && letters[at + 1..]
            .iter()
            .take(hashes)
            .filter(|letter| **letter == '#')
            .count()
            == hashes
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Whether a line holds a word that is not part of a longer one.
pub(crate) fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !runs_on(before, word.chars().next()) && !runs_on(word.chars().next_back(), after)
    })
}

/// Whether two neighbouring letters belong to one word.
fn runs_on(left: Option<char>, right: Option<char>) -> bool {
    left.is_some_and(is_word) && right.is_some_and(is_word)
}

/// All functions with a body, closures and nested functions counted with the one they stand in as well.
pub(crate) fn functions(source: &Source) -> Vec<Function> {
    let code = &source.code;
    let starts = code
        .match_indices("fn ")
        .filter(|(at, _)| !code[..*at].chars().next_back().is_some_and(is_word));
    starts.filter_map(|(at, _)| function_at(code, at)).collect()
}

fn function_at(code: &str, at: usize) -> Option<Function> {
    let name: String = code[at + 3..]
        .chars()
        .take_while(|letter| is_word(*letter))
        .collect();
    let open = at + body_start(&code[at..])?;
    let close = open + matching_brace(&code[open..])?;
    let body = &code[open + 1..close];
    let lines = body.lines().filter(|line| !line.trim().is_empty()).count();
    let line = code[..at].matches('\n').count() + 1;
    (!name.is_empty()).then_some(Function {
        name,
        at: line,
        lines,
    })
}

/// Where a body's brace is, unless a semicolon outside brackets comes first.
fn body_start(code: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, letter) in code.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

fn matching_brace(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, letter) in code.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The text without what stands below `#[cfg(test)]` at its end.
pub(crate) fn without_tests(text: &str) -> String {
    text.split("#[cfg(test)]").next().unwrap_or(text).to_owned()
}

/// The stems of the thread names that stand as literals where threads are built: `.name("timer")`,
/// `.name(format!("owner-{dir}"))`. Names that come from a variable are found by the README's side of the comparison.
pub(crate) fn thread_names(source: &Source) -> Vec<String> {
    let text = without_tests(&source.text);
    let builders = text
        .match_indices("thread::Builder::new()")
        .map(|(at, _)| &text[at..]);
    builders
        .filter_map(name_of_builder)
        .filter(|name| !name.is_empty())
        .collect()
}

fn name_of_builder(from: &str) -> Option<String> {
    let argument = &from[from.find(".name(")? + 6..];
    let argument = argument.strip_prefix("format!(").unwrap_or(argument);
    let literal = argument.strip_prefix('"')?;
    Some(stem(&literal[..literal.find('"')?]))
}

/// What is the same in all names of a kind of thread: `append` of `append-D-N`, `append-<dir>-N` and `append-{dir}-{n}`.
pub(crate) fn stem(name: &str) -> String {
    let words = name.split('-').take_while(|word| {
        word.chars()
            .next()
            .is_some_and(|first| first.is_lowercase())
            && !word.contains(['{', '<'])
    });
    words.collect::<Vec<_>>().join("-")
}

/// `api(18, "ApiVersions", 0..=5, api_versions::handle)`, over as many lines as it takes.
pub(crate) fn api_rows(text: &str) -> Vec<ApiRow> {
    let table = text.split("static TABLE").nth(1).unwrap_or_default();
    let table = &table[..table.find("];").unwrap_or(table.len())];
    table.split("api(").skip(1).filter_map(api_row).collect()
}

fn api_row(call: &str) -> Option<ApiRow> {
    let arguments: Vec<&str> = call[..call.find(')')?].split(',').map(str::trim).collect();
    let [key, name, versions, handler, ..] = arguments[..] else {
        return None;
    };
    let (from, to) = versions.split_once("..=")?;
    Some(ApiRow {
        key: key.to_owned(),
        name: name.trim_matches('"').to_owned(),
        versions: (from.to_owned(), to.to_owned()),
        module: handler.split("::").next()?.to_owned(),
    })
}

/// `describe_topic_partitions` of `DescribeTopicPartitions`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            path: "x.rs".to_owned(),
            text: text.to_owned(),
            code: blank(text),
        }
    }

    #[test]
    fn words_in_comments_and_strings_do_not_count() {
        let text = "let a = \"Mutex\"; // Mutex\n/* Mutex /* Mutex */ Mutex */ let b = r#\"Mutex \" Mutex\"#;\nlet c = '\"'; Mutex";
        let code = blank(text);
        assert_eq!(code.matches("Mutex").count(), 1);
        assert_eq!(code.matches('\n').count(), text.matches('\n').count());
    }

    #[test]
    fn a_function_is_as_long_as_its_body_without_blank_and_comment_lines() {
        let text = "trait T { fn none(&self); }\nfn two<'a>(x: [u8; 3]) -> u8 {\n    // why\n\n    let y = \"{\";\n    1\n}\n";
        let found = functions(&source(text));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].name.as_str(), found[0].at, found[0].lines),
            ("two", 2, 2)
        );
    }

    #[test]
    fn words_are_whole_words() {
        assert!(holds_word("thread::sleep(x)", "sleep("));
        assert!(!holds_word("about_to_sleep()", "sleep("));
        assert!(!holds_word("use seawall_net::x", "seawall"));
    }

    #[test]
    fn thread_names_are_found_and_compared_by_their_stems() {
        let text = "std::thread::Builder::new()\n  .name(format!(\"owner-{name}\"))\nthread::Builder::new().name(\"admin-http\".into())";
        assert_eq!(thread_names(&source(text)), ["owner", "admin-http"]);
        assert_eq!(
            ["append-D-N", "commit-<dir>-K", "watchdog"].map(stem),
            ["append", "commit", "watchdog"]
        );
    }
}
