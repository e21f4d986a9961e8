//! Rules for single source files: length, opening line, unsafe code, silenced lints.

use crate::{
    Finding, Tree,
    tokens::{Kind, Token, end_of_group, tokens},
};

/// Most lines of a source file; longer ones are split along what they decide (DESIGN, "Workspace").
pub const LINES_MAX: usize = 600;

/// Most lines of a shell script; what needs more is a program.
pub const SCRIPT_LINES_MAX: usize = 50;

/// Files nobody writes by hand, which the rules on length and lints leave alone: path prefix, reason.
pub const GENERATED: &[(&str, &str)] = &[];

/// Where `unsafe` may stand: path prefix, reason.
pub const UNSAFE_ALLOWED: &[(&str, &str)] = &[
    ("bindings/src/generated/", "foreign-function scaffolding is generated"),
    ("crates/log/src/map.rs", "the log is a mapped file"),
    ("lab/src/os.rs", "TUN, setns and the scheduler are system calls"),
    ("lab/src/os/", "TUN, setns and the scheduler are system calls"),
];

/// Finds source files that are too long to be about one thing.
#[must_use]
pub fn lengths(tree: &Tree, generated: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let is_script = path.ends_with(".sh") || text.starts_with("#!") && text.lines().next().is_some_and(is_shell);
        let is_source = [".rs", ".py", ".proto"].iter().any(|end| path.ends_with(end));
        let most = if is_script { SCRIPT_LINES_MAX } else { LINES_MAX };
        let lines = text.lines().count();
        if (is_script || is_source) && lines > most && !listed(generated, path) {
            let advice = if is_script { "write a program instead" } else { "split it along what it decides" };
            findings.push(Finding::new(path, most + 1, format!("{lines} lines, where {most} are the most: {advice}")));
        }
    }
    findings
}

fn is_shell(first_line: &str) -> bool {
    first_line.ends_with("sh")
}

/// Finds crate roots that do not open by saying what they are.
#[must_use]
pub fn opening_lines(tree: &Tree) -> Vec<Finding> {
    let is_root =
        |path: &str| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("/src/bin/");
    let roots = tree.with_extension("rs").filter(|(path, _)| is_root(path));
    let silent = roots.filter(|(_, text)| !text.starts_with("//! "));
    silent.map(|(path, _)| Finding::new(path, 1, "open the crate with a `//!` line that says what it is")).collect()
}

/// Finds `unsafe` outside the places that may have it, and inside them without a `// SAFETY:` reason above.
#[must_use]
pub fn unsafe_code(tree: &Tree, allowed: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for_each_file(tree, &mut findings, |path, text, tokens, findings| {
        let lines: Vec<&str> = text.lines().collect();
        for token in tokens.iter().filter(|token| token.kind == Kind::Ident && token.text == "unsafe") {
            let message = if !listed(allowed, path) {
                "`unsafe` may not stand here: use a safe crate, or move it to a place in UNSAFE_ALLOWED of tidy/src/sources.rs"
            } else if !has_safety_reason(&lines, token.line) {
                "say in a `// SAFETY:` comment right above why this is sound"
            } else {
                continue;
            };
            findings.push(Finding::new(path, token.line, message));
        }
    });
    findings
}

/// Tells whether the comment on `line` (from 1), or on the comment and attribute lines right above it, gives a reason.
fn has_safety_reason(lines: &[&str], line: usize) -> bool {
    let is_reason =
        |text: &str| text.split_once("//").is_some_and(|(_, comment)| comment.trim().starts_with("SAFETY:"));
    let above = lines[..line - 1].iter().rev().map(|text| text.trim());
    let mut belonging = above.take_while(|text| text.starts_with("//") || text.starts_with("#["));
    is_reason(lines[line - 1]) || belonging.any(is_reason)
}

/// Finds lints silenced by `allow` instead of `expect`, and an `expect` without its reason.
#[must_use]
pub fn silenced_lints(tree: &Tree, generated: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for_each_file(tree, &mut findings, |path, _, tokens, findings| {
        if listed(generated, path) {
            return;
        }
        for attribute in attributes(tokens) {
            for (at, token) in attribute.iter().enumerate().filter(|(_, token)| token.kind == Kind::Ident) {
                let calls = attribute.get(at + 1).is_some_and(|next| next.text == "(");
                let message = match token.text.as_str() {
                    "allow" if calls => {
                        "write `#[expect(…, reason = \"…\")]`: it says why, and ends when the lint no longer fires"
                    }
                    "expect" if calls && !attribute.iter().any(|token| token.text == "reason") => {
                        "give the `expect` its `reason = \"…\"`"
                    }
                    _ => continue,
                };
                findings.push(Finding::new(path, token.line, message));
            }
        }
    });
    findings
}

/// Returns the tokens inside each `#[…]` and `#![…]`.
fn attributes(tokens: &[Token]) -> Vec<&[Token]> {
    let mut found = Vec::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| token.kind == Kind::Punct && token.text == "#") {
        let inner = tokens.get(at + 1).is_some_and(|token| token.text == "!");
        let open = at + 1 + usize::from(inner);
        if tokens.get(open).is_some_and(|token| token.text == "[") {
            found.push(&tokens[open + 1..end_of_group(tokens, open)]);
        }
    }
    found
}

/// Hands the tokens of every Rust file to `judge`; a file that is not Rust is a finding itself.
pub(crate) fn for_each_file(
    tree: &Tree,
    findings: &mut Vec<Finding>,
    mut judge: impl FnMut(&str, &str, &[Token], &mut Vec<Finding>),
) {
    for (path, text) in tree.with_extension("rs") {
        match tokens(text) {
            Ok(tokens) => judge(path, text, &tokens, findings),
            Err((line, reason)) => findings.push(Finding::new(path, line, reason)),
        }
    }
}

fn listed(list: &[(&str, &str)], path: &str) -> bool {
    list.iter().any(|(prefix, _)| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    fn sample(text: &str) -> Tree {
        Tree::of(&[("crates/net/src/a.rs", text)])
    }

    #[test]
    fn a_file_of_601_lines_is_found_and_one_of_600_is_not() {
        let tree = Tree::of(&[
            ("a.rs", &"\n".repeat(600)),
            ("b.rs", &"\n".repeat(601)),
            ("c.py", &"\n".repeat(601)),
            ("d.proto", &"\n".repeat(601)),
            ("e.md", &"\n".repeat(601)),
            ("generated/f.rs", &"\n".repeat(601)),
        ]);
        let found = lengths(&tree, &[("generated/", "a tool writes it")]);
        assert_eq!(found.iter().map(|finding| finding.file.as_str()).collect::<Vec<_>>(), ["b.rs", "c.py", "d.proto"]);
    }

    #[test]
    fn a_long_shell_script_is_found_by_its_name_or_its_first_line() {
        let script = format!("#!/usr/bin/env bash\n{}", "true\n".repeat(50));
        let tree =
            Tree::of(&[("a.sh", &script), (".ci/run", &script), ("b.sh", "true\n"), ("c", "#!/usr/bin/python3\n")]);
        assert_eq!(lines(&lengths(&tree, &[])), [51, 51]);
    }

    #[test]
    fn a_crate_that_does_not_say_what_it_is_is_found() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "//! A.\n"),
            ("b/src/lib.rs", "\n//! B.\n"),
            ("c/src/main.rs", "fn main() {}\n"),
            ("d/src/bin/d.rs", "// D.\n"),
            ("d/src/other.rs", ""),
        ]);
        assert_eq!(opening_lines(&tree).len(), 3);
    }

    #[test]
    fn unsafe_code_is_found_outside_its_places() {
        let text = "// SAFETY: no.\nfn a() { unsafe { b() } }\n// unsafe\nconst C: &str = \"unsafe\";\n";
        assert_eq!(lines(&unsafe_code(&sample(text), UNSAFE_ALLOWED)), [2]);
    }

    #[test]
    fn unsafe_code_in_its_place_needs_a_reason_right_above() {
        let text = "// SAFETY: the page is ours.\n#[inline]\nunsafe fn a() {}\n\nunsafe fn b() {}\n\
                    fn c() {\n    // SAFETY: as above,\n    // in two lines.\n    unsafe { a() };\n    unsafe { a() }; // SAFETY: same.\n}\n";
        assert_eq!(lines(&unsafe_code(&sample(text), &[("crates/net/src/a.rs", "a test")])), [5]);
    }

    #[test]
    fn a_lint_silenced_without_a_reason_is_found() {
        let text = "#![allow(unused)]\n#[expect(unused)]\nfn a() { b().expect(\"set\"); }\n#[cfg_attr(test, allow(dead_code))]\n\
                    #[expect(unused, reason = \"it shows\")]\nfn c() { allow(1); }\n// #[allow(unused)]\n";
        assert_eq!(lines(&silenced_lints(&sample(text), &[])), [1, 2, 4]);
        assert_eq!(silenced_lints(&sample(text), &[("crates/net/", "generated")]), []);
    }

    #[test]
    fn a_file_that_is_not_rust_is_found_by_the_rules_that_read_it() {
        assert_eq!(unsafe_code(&sample("fn a( {"), &[]).len(), 1);
    }
}
