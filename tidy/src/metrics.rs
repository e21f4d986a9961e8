//! Names of metrics: counters end in `_total`, nothing else does.

use crate::{
    Finding, Tree,
    sources::for_each_file,
    tokens::{Kind, Token, end_of_group, start_of_group},
};

/// Finds metrics named in code whose name does not fit their kind: counters end in `_total`, nothing else does.
///
/// A metric is a string `ropeway_…`; it is a counter if the word stands beside it in its own brackets or right before
/// them, as in `counter("ropeway_links_total")`, `Counter::new("ropeway_links_total")` or `(Kind::Counter, "ropeway_…")`,
/// or in the type of the field it is given to, as in `links: Family<Counter>` and `links: Family::new("ropeway_…")`. In Prometheus text inside a string, the `# TYPE` line tells.
#[must_use]
pub fn counter_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for_each_file(tree, &mut findings, |path, _, tokens, findings| {
        for (at, token) in tokens.iter().enumerate().filter(|(_, token)| !token.test) {
            let Some(text) = token.string() else { continue };
            let found =
                if is_metric(text) { kind_nearby(tokens, at).map(|kind| (text, kind)) } else { typed_metric(text) };
            let Some((name, is_counter)) = found else { continue };
            let message = match (is_counter, name.ends_with("_total")) {
                (true, false) => format!("`{name}` is a counter: end its name in `_total`"),
                (false, true) => format!("`{name}` is no counter: only counters end in `_total`"),
                (true, true) | (false, false) => continue,
            };
            findings.push(Finding::new(path, token.line, message));
        }
    });
    findings
}

fn is_metric(text: &str) -> bool {
    text.starts_with("ropeway_") && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

/// Returns the name and whether it is a counter, from a Prometheus `# TYPE name kind` line in `text`.
fn typed_metric(text: &str) -> Option<(&str, bool)> {
    let (_, line) = text.split_once("# TYPE ")?;
    let (name, kind) = line.split_once(' ')?;
    name.starts_with("ropeway_").then_some((name, kind.starts_with("counter")))
}

/// Tells whether the string at `at` names a counter (`true`) or another kind of metric; `None` when nothing says.
fn kind_nearby(tokens: &[Token], at: usize) -> Option<bool> {
    let open = start_of_group(tokens, at)?;
    let is_path =
        |token: &&Token| token.kind == Kind::Ident || matches!(token.text.as_str(), ":" | "!" | "." | "<" | ">");
    let callee: Vec<&Token> = tokens[..open].iter().rev().take(CALLEE_TOKENS_MAX).take_while(is_path).collect();
    let mut depth = 0_usize;
    let beside = tokens[open + 1..end_of_group(tokens, open)].iter().filter(|token| {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            Kind::Ident | Kind::Literal | Kind::Punct => {}
        }
        depth == 0
    });
    kind_said(callee.iter().copied().chain(beside)).or_else(|| {
        // In `field: Family::new("…")` the kind stands where the struct declares the field.
        let field = callee.iter().rev().find(|token| token.kind == Kind::Ident)?;
        let declared =
            tokens.windows(2).enumerate().filter(|(_, pair)| pair[0].text == field.text && pair[1].text == ":");
        declared.into_iter().find_map(|(at, _)| {
            kind_said(
                tokens[at + 2..].iter().take_while(|token| !matches!(token.text.as_str(), "," | ";" | "{" | "}" | "(")),
            )
        })
    })
}

/// Tells which kind of metric the words among `tokens` speak of.
fn kind_said<'a>(tokens: impl Iterator<Item = &'a Token>) -> Option<bool> {
    let words = tokens.filter(|token| token.kind == Kind::Ident).map(|token| token.text.to_lowercase());
    words.into_iter().find_map(|word| match word {
        word if word.contains("counter") => Some(true),
        word if ["gauge", "histogram", "summary"].iter().any(|kind| word.contains(kind)) => Some(false),
        _ => None,
    })
}

/// Most tokens before a bracket that are read as the name of what is called.
const CALLEE_TOKENS_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_does_not_end_in_total_is_found() {
        for (text, expected) in [
            (r#"fn a() { counter("ropeway_links"); }"#, 1),
            (r#"fn a() { Counter::new("ropeway_links", "Links."); }"#, 1),
            (r#"fn a() { registry.register_counter("ropeway_links_total", b("x")); }"#, 0),
            (r#"const A: (&str, Kind) = ("ropeway_links", Kind::Counter);"#, 1),
            (r#"const A: M = M { name: "ropeway_links", kind: Kind::Counter };"#, 1),
            (r#"fn a() { gauge("ropeway_links_total"); }"#, 1),
            (r#"fn a() { gauge("ropeway_links"); }"#, 0),
            (r#"fn a() { open("ropeway_links"); }"#, 0),
            (r##"const A: &str = "# TYPE ropeway_links counter\nropeway_links 1\n";"##, 1),
            (r##"const A: &str = "# TYPE ropeway_links_total counter\n";"##, 0),
            (r##"const A: &str = "# TYPE ropeway_links gauge\n";"##, 0),
            (r#"#[test] fn a() { counter("ropeway_links"); }"#, 0),
            (r#"fn a() { let b = Family::<Counter>::new("ropeway_links"); }"#, 1),
            (
                r#"struct A { b: Family<Counter>, c: u8 } fn a() -> A { A { c: 1, b: Family::new("ropeway_links", &["c"]) } }"#,
                1,
            ),
            (r#"struct A { b: Family<Gauge> } fn a() -> A { A { b: Family::new("ropeway_links_total") } }"#, 1),
            (r#"struct A { b: Family<Gauge> } fn a() -> A { A { b: Family::new("ropeway_links") } }"#, 0),
        ] {
            assert_eq!(counter_names(&Tree::of(&[("crates/net/src/a.rs", text)])).len(), expected, "{text}");
        }
    }
}
