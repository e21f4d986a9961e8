//! Rust source as a flat list of tokens: no comments, every token with its line and whether it is test code.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// What a [`Token`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A closing bracket of any sort.
    Close,
    /// A name or a keyword.
    Ident,
    /// A literal: string, character or number.
    Literal,
    /// An opening bracket of any sort.
    Open,
    /// One character of punctuation; `::` is two tokens.
    Punct,
}

/// One token of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The text as written.
    pub text: String,
    /// What it is.
    pub kind: Kind,
    /// The line, from 1.
    pub line: usize,
    /// Whether it stands in an item under `#[test]` or `#[cfg(test)]`.
    pub test: bool,
}

impl Token {
    /// Returns the content of a plain or raw string literal, with escapes left as written.
    #[must_use]
    pub fn string(&self) -> Option<&str> {
        let text = self.text.trim_end_matches('#');
        let start = text.find('"')?;
        let quoted = self.kind == Kind::Literal && matches!(text[..start].trim_end_matches('#'), "" | "r" | "b" | "br");
        if quoted { text.get(start + 1..text.len() - 1) } else { None }
    }
}

/// Splits a Rust source file into tokens.
///
/// Documentation comments appear as the attributes they stand for, other comments not at all.
///
/// # Errors
///
/// When the text is not Rust, with the line and the reason.
pub fn tokens(source: &str) -> Result<Vec<Token>, (usize, String)> {
    let stream: TokenStream = source
        .parse()
        .map_err(|error: proc_macro2::LexError| (error.span().start().line.max(1), format!("not Rust: {error}")))?;
    let mut flat = Vec::new();
    flatten(stream, false, &mut flat);
    Ok(flat)
}

/// Finds every place where `pattern` (tokens apart, as in `["Instant", ":", ":", "now"]`) starts outside test code.
pub fn find<'a>(tokens: &'a [Token], pattern: &'a [&str]) -> impl Iterator<Item = &'a Token> {
    tokens.windows(pattern.len().max(1)).filter_map(move |window| {
        let same = window.iter().zip(pattern).all(|(token, text)| token.text == *text && token.kind != Kind::Literal);
        (same && !window[0].test).then_some(&window[0])
    })
}

/// Finds every `use` or path that reaches `parent::child` outside test code, also by `parent::{…, child}`.
#[must_use]
pub fn find_path<'a>(tokens: &'a [Token], parent: &str, child: &str) -> Vec<&'a Token> {
    let mut found = Vec::new();
    for start in 0..tokens.len() {
        let [first, colon, colon_again, next, rest @ ..] = &tokens[start..] else { break };
        if first.test || first.text != parent || colon.text != ":" || colon_again.text != ":" {
            continue;
        }
        if next.text == child {
            found.push(next);
        } else if next.text == "{" {
            found.extend(child_of_group(rest, child));
        }
    }
    found
}

/// Finds `child` as the first name of an entry in the braces that `tokens` start inside of.
fn child_of_group<'a>(tokens: &'a [Token], child: &str) -> Option<&'a Token> {
    let (mut depth, mut entry_starts) = (0_usize, true);
    for token in tokens {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close if depth == 0 => return None,
            Kind::Close => depth -= 1,
            Kind::Ident if depth == 0 && entry_starts && token.text == child => return Some(token),
            Kind::Ident | Kind::Literal | Kind::Punct => {}
        }
        entry_starts = depth == 0 && token.text == ",";
    }
    None
}

/// Returns the index of the bracket that the token at `at` stands in.
#[must_use]
pub fn start_of_group(tokens: &[Token], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (open, token) in tokens[..at].iter().enumerate().rev() {
        match token.kind {
            Kind::Close => depth += 1,
            Kind::Open if depth == 0 => return Some(open),
            Kind::Open => depth -= 1,
            Kind::Ident | Kind::Literal | Kind::Punct => {}
        }
    }
    None
}

/// Returns the index of the bracket that closes the one at `open`.
#[must_use]
pub fn end_of_group(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close if depth <= 1 => return at,
            Kind::Close => depth -= 1,
            Kind::Ident | Kind::Literal | Kind::Punct => {}
        }
    }
    tokens.len()
}

fn flatten(stream: TokenStream, in_test: bool, flat: &mut Vec<Token>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut item_is_test = false;
    for (at, tree) in trees.iter().enumerate() {
        let test = in_test || item_is_test;
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = brackets(group.delimiter());
                flat.push(Token { text: open.to_owned(), kind: Kind::Open, line, test });
                flatten(group.stream(), test, flat);
                let line = group.span_close().start().line;
                flat.push(Token { text: close.to_owned(), kind: Kind::Close, line, test });
                item_is_test &= group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Ident(ident) => flat.push(Token { text: ident.to_string(), kind: Kind::Ident, line, test }),
            TokenTree::Literal(literal) => {
                flat.push(Token { text: literal.to_string(), kind: Kind::Literal, line, test });
            }
            TokenTree::Punct(punct) => {
                item_is_test |= punct.as_char() == '#' && trees.get(at + 1).is_some_and(marks_test);
                item_is_test &= punct.as_char() != ';';
                flat.push(Token { text: punct.as_char().to_string(), kind: Kind::Punct, line, test });
            }
        }
    }
}

const fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
        Delimiter::Parenthesis => ("(", ")"),
    }
}

/// Tells whether the brackets of an attribute say that the item they belong to is test code.
fn marks_test(tree: &TokenTree) -> bool {
    let TokenTree::Group(group) = tree else { return false };
    if group.delimiter() != Delimiter::Bracket {
        return false;
    }
    let mut names = Vec::new();
    collect_names(group.stream(), &mut names);
    let has = |name: &str| names.iter().any(|other| other == name);
    match names.first().map(String::as_str) {
        Some("cfg") => has("test") && !has("not"),
        Some(_) => names.iter().take(2).any(|name| name == "test") && !has("cfg_attr"),
        None => false,
    }
}

fn collect_names(stream: TokenStream, names: &mut Vec<String>) {
    for tree in stream {
        match tree {
            TokenTree::Group(group) => collect_names(group.stream(), names),
            TokenTree::Ident(ident) => names.push(ident.to_string()),
            TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<'a>(found: impl IntoIterator<Item = &'a Token>) -> Vec<usize> {
        found.into_iter().map(|token| token.line).collect()
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let source =
            "// Instant::now\n/* Instant::now */\nconst A: &str = \"Instant::now\";\nfn a() { Instant::now(); }\n";
        let tokens = tokens(source).expect("the sample is Rust");
        assert_eq!(lines(find(&tokens, &["Instant", ":", ":", "now"])), [4]);
    }

    #[test]
    fn test_items_are_marked_and_what_follows_them_is_not() {
        let source = "#[cfg(test)]\nuse a::bad;\n#[test]\nfn t() -> [u8; 1] { bad() }\n#[tokio::test]\nasync fn u() { bad() }\n\
                      fn real() { bad() }\n#[cfg(not(test))]\nfn other() { bad() }\n#[cfg(test)]\nmod tests { fn x() { bad() } }\n";
        let tokens = tokens(source).expect("the sample is Rust");
        assert_eq!(lines(find(&tokens, &["bad"])), [7, 9]);
    }

    #[test]
    fn a_child_is_found_plainly_and_in_braces() {
        let source =
            "use std::fs;\nuse std::{\n    io::{self, fs},\n    fs::File,\n};\nuse std::{io};\nuse other::fs;\n";
        let tokens = tokens(source).expect("the sample is Rust");
        assert_eq!(lines(find_path(&tokens, "std", "fs")), [1, 4]);
    }

    #[test]
    fn strings_are_unquoted() {
        let tokens = tokens(r##"const A: [&str; 4] = ["a", r"b", r#"c"#, 'd', 5];"##).expect("the sample is Rust");
        let strings: Vec<&str> = tokens.iter().filter_map(Token::string).collect();
        assert_eq!(strings, ["a", "b", "c"]);
    }

    #[test]
    fn text_that_is_not_rust_is_an_error_with_its_line() {
        assert_eq!(tokens("fn a() {\n]\n").map_err(|(line, _)| line), Err(2));
    }
}
