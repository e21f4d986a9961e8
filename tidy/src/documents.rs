//! Rules for what people read: links that lead somewhere, a short README, numbered decisions, no private words.

use std::collections::BTreeMap;

use crate::{
    Finding, Tree,
    tree::{folder_of, join},
};

/// Most lines of the README; the rest belongs in `docs/`.
pub const README_LINES_MAX: usize = 120;

/// Words that tell of one developer's machine or of a package registry, each with what to do.
///
/// They are written in two parts, so that this file does not hold what it forbids.
const PRIVATE: &[(&str, &str)] = &[
    (concat!("/ho", "me/"), MACHINE),
    (concat!("/ro", "ot/"), MACHINE),
    (concat!("/Us", "ers/"), MACHINE),
    (concat!("/wo", "rk/"), MACHINE),
    (concat!("cra", "tes.io"), REGISTRY),
    (concat!("deb.deb", "ian.org"), REGISTRY),
    (concat!("py", "pi.org"), REGISTRY),
    (concat!("pythonho", "sted.org"), REGISTRY),
    (concat!("registry.npm", "js.org"), REGISTRY),
    (concat!("repo1.ma", "ven.org"), REGISTRY),
];

const MACHINE: &str = "write a path that holds on any machine";
const REGISTRY: &str = "name the package, not the registry's host";

/// Files that tools write and that name a registry: path, reason.
pub const TOOL_WRITTEN: &[(&str, &str)] =
    &[("Cargo.lock", "cargo writes the registry into it"), ("fuzz/Cargo.lock", "cargo writes the registry into it")];

/// Finds relative links in Markdown that lead to no file.
#[must_use]
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("md") {
        for (line, target) in link_targets(text) {
            let file = target.split(['#', '?']).next().unwrap_or_default();
            let has_scheme = target.split_once(':').is_some_and(|(scheme, _)| !scheme.contains(['/', '.', '#']));
            if has_scheme || file.is_empty() {
                continue;
            }
            let found = match file.strip_prefix('/') {
                Some(_) => None,
                None => join(folder_of(path), &file.replace("%20", " ")).filter(|file| tree.has(file)),
            };
            if found.is_none() {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("the link `{target}` leads to no file of this checkout"),
                ));
            }
        }
    }
    findings
}

/// Returns the targets of `[text](target)` and `[text]: target` outside code, each with its line.
fn link_targets(markdown: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    let mut fence: Option<&str> = None;
    for (at, line) in markdown.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(close)) if open == close => fence = None,
            (None, None) => {
                let prose = without_code_spans(line);
                let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
                let reference =
                    start.starts_with('[').then(|| prose.split_once("]: ")).flatten().map(|(_, rest)| rest.trim());
                targets
                    .extend(inline.chain(reference).map(|target| (at + 1, target.trim_matches(['<', '>']).to_owned())));
            }
            (Some(_), None | Some(_)) => {}
        }
    }
    targets
}

fn without_code_spans(line: &str) -> String {
    line.split('`').enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, part)| part).collect::<Vec<_>>().join("`")
}

/// Finds a README that is too long to be read.
#[must_use]
pub fn readme(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text("README.md") else {
        return vec![Finding::new("README.md", 1, "the project has no README")];
    };
    let lines = text.lines().count();
    let message = format!("{lines} lines, where {README_LINES_MAX} are the most: move the details to docs/");
    if lines > README_LINES_MAX { vec![Finding::new("README.md", README_LINES_MAX + 1, message)] } else { Vec::new() }
}

/// Finds decision notes that are not named `NNNN-title.md`, or that share a number.
#[must_use]
pub fn decisions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut numbers: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, text) in tree.texts() {
        let Some(name) = path.strip_prefix("docs/decisions/").filter(|name| *name != "README.md") else { continue };
        let Some(number) = number_of(name) else {
            findings.push(Finding::new(path, 1, "name it NNNN-title.md, in lower case with hyphens"));
            continue;
        };
        if let Some(first) = numbers.insert(number, path) {
            findings.push(Finding::new(
                path,
                1,
                format!("{first} has the number {number} already: take the next free one"),
            ));
        }
        if !text.starts_with("# ") {
            findings.push(Finding::new(path, 1, "open it with its title: `# …`"));
        }
    }
    findings
}

fn number_of(name: &str) -> Option<&str> {
    let (number, title) = name.strip_suffix(".md")?.split_once('-')?;
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_title = !title.is_empty() && title.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    (is_number && is_title).then_some(number)
}

/// Finds paths of one developer's machine and hosts of package registries, in any text file.
#[must_use]
pub fn private_words(tree: &Tree, tool_written: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !tool_written.iter().any(|(listed, _)| listed == path)) {
        for (at, line) in text.lines().enumerate() {
            for (word, advice) in PRIVATE.iter().filter(|(word, _)| holds(line, word)) {
                findings.push(Finding::new(path, at + 1, format!("`{word}` does not belong in the project: {advice}")));
            }
        }
    }
    findings
}

/// Tells whether `word` stands in `line`; a path only at its own beginning, not as a later part of a URL.
fn holds(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !word.starts_with('/')
            || !before.is_some_and(|character| character.is_alphanumeric() || "._-~}>".contains(character))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_link_to_no_file_is_found_and_the_others_are_not() {
        let text = "[a](../README.md#top)\n[b](missing.md)\n[c](https://example.org/x)\n[d](#here)\n`[e](code.md)`\n\
                    ```\n[f](code.md)\n```\n[g]: also-missing.md\n[h]: book\n[i](../../outside.md) and [j](book/ \"title\")\n\
                    [k](mailto:a@example.org)\n[l](/absolute.md)\n";
        let tree = Tree::of(&[("docs/index.md", text), ("README.md", ""), ("docs/book/one.md", "")]);
        assert_eq!(lines(&links(&tree)), [2, 9, 11, 13]);
    }

    #[test]
    fn a_readme_of_121_lines_or_none_at_all_is_found() {
        assert_eq!(readme(&Tree::of(&[("README.md", &"a\n".repeat(120))])), []);
        assert_eq!(lines(&readme(&Tree::of(&[("README.md", &"a\n".repeat(121))]))), [121]);
        assert_eq!(readme(&Tree::of(&[])).len(), 1);
    }

    #[test]
    fn decisions_without_a_number_of_their_own_are_found() {
        let note = "# A title\n";
        let found = decisions(&Tree::of(&[
            ("docs/decisions/README.md", "Decisions"),
            ("docs/decisions/0001-one.md", note),
            ("docs/decisions/0001-uno.md", note),
            ("docs/decisions/0002-two-2.md", note),
            ("docs/decisions/3-three.md", note),
            ("docs/decisions/0004-Four.md", note),
            ("docs/decisions/0005-five.md", "no title"),
        ]));
        let files: Vec<&str> = found.iter().map(|finding| finding.file.trim_start_matches("docs/decisions/")).collect();
        assert_eq!(files, ["0001-uno.md", "0004-Four.md", "0005-five.md", "3-three.md"]);
    }

    #[test]
    fn private_words_are_found_in_every_text_file() {
        for (word, _) in PRIVATE {
            let text = format!("a\nsee {word}x\n");
            assert_eq!(lines(&private_words(&Tree::of(&[("a/b.toml", &text)]), &[])), [2], "{word}");
            assert_eq!(private_words(&Tree::of(&[("a/b.toml", &text)]), &[("a/b.toml", "a tool writes it")]), []);
        }
    }

    #[test]
    fn a_path_inside_a_url_or_below_another_folder_is_free() {
        let word = PRIVATE[0].0;
        for text in [format!("https://api.test{word}x"), format!("./data{word}x"), format!("${{prefix}}{word}x")] {
            assert_eq!(private_words(&Tree::of(&[("a.md", &text)]), &[]), [], "{text}");
        }
    }
}
