//! No unlinked source file: what no `mod` reaches is compiled by nobody and rots.

use std::collections::BTreeSet;

use crate::{
    Finding, Tree,
    tokens::{Kind, Token, tokens},
    tree::{folder_of, join},
};

/// Finds the `.rs` files that no crate root reaches by `mod` or `include!`.
///
/// Roots are `src/lib.rs`, `src/main.rs`, `src/bin/*`, `build.rs`, the files (or `main.rs` folders) right inside `tests/`,
/// `benches/` and `examples/`, and every `path` the manifest names.
#[must_use]
pub fn unlinked(tree: &Tree) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    let mut findings = Vec::new();
    for (manifest, text) in tree.texts().filter(|(path, _)| *path == "Cargo.toml" || path.ends_with("/Cargo.toml")) {
        for root in roots(tree, folder_of(manifest), text) {
            follow(tree, &root, true, &mut reached, &mut findings);
        }
    }
    for (path, _) in tree.with_extension("rs").filter(|(path, _)| !reached.contains(*path)) {
        findings.push(Finding::new(
            path,
            1,
            "no `mod` reaches this file: link it from its parent module, or delete it",
        ));
    }
    findings
}

fn roots(tree: &Tree, folder: &str, manifest: &str) -> Vec<String> {
    let inside = |path: &str| join(folder, path).filter(|path| tree.has(path));
    let mut roots: Vec<String> = ["src/lib.rs", "src/main.rs", "build.rs"].into_iter().filter_map(inside).collect();
    for place in ["src/bin", "tests", "benches", "examples"] {
        let place = join(folder, place).unwrap_or_default();
        roots.extend(tree.with_extension("rs").map(|(path, _)| path).filter_map(|path| {
            let name = path.strip_prefix(&place)?.strip_prefix('/')?;
            let is_root = !name.contains('/') || (name.ends_with("/main.rs") && name.matches('/').count() == 1);
            is_root.then(|| path.to_owned())
        }));
    }
    let table: toml::Table = manifest.parse().unwrap_or_default();
    let build = table.get("package").and_then(|package| package.get("build"));
    let targets = ["lib", "bin", "test", "bench", "example"].into_iter().filter_map(|kind| table.get(kind));
    let paths = targets.flat_map(|target| match target.as_array() {
        Some(several) => several.iter().filter_map(|one| one.get("path")).collect(),
        None => Vec::from_iter(target.get("path")),
    });
    roots.extend(paths.chain(build).filter_map(toml::Value::as_str).filter_map(inside));
    roots
}

fn follow(tree: &Tree, path: &str, is_root: bool, reached: &mut BTreeSet<String>, findings: &mut Vec<Finding>) {
    let Some(text) = tree.text(path) else { return };
    if !reached.insert(path.to_owned()) {
        return;
    }
    let list = match tokens(text) {
        Ok(list) => list,
        Err((line, reason)) => return findings.push(Finding::new(path, line, reason)),
    };
    let owns_folder = is_root || path.ends_with("/mod.rs");
    for child in children(&list, path, owns_folder) {
        if let Some(found) = child.candidates.iter().find(|candidate| tree.has(candidate)) {
            follow(tree, found, child.owns_folder, reached, findings);
        }
    }
}

/// A file that a module names: where it may lie, and whether its own children lie beside it.
struct Child {
    candidates: Vec<String>,
    owns_folder: bool,
}

fn children(tokens: &[Token], path: &str, owns_folder: bool) -> Vec<Child> {
    let folder = folder_of(path);
    let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
    let base = if owns_folder { folder.to_owned() } else { join(folder, stem).unwrap_or_default() };
    // The inline modules around the current token; an empty name is a pair of braces that is no module.
    let mut inline: Vec<String> = Vec::new();
    let mut named_path: Option<&str> = None;
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let text = |ahead: usize| tokens.get(at + ahead).map_or("", |token| token.text.as_str());
        match (token.kind, token.text.as_str()) {
            (Kind::Open, "{") => {
                let is_module = at >= 2 && tokens[at - 2].text == "mod";
                inline.push(if is_module { tokens[at - 1].text.clone() } else { String::new() });
                named_path = None;
            }
            (Kind::Close, "}") => {
                inline.pop();
                named_path = None;
            }
            (Kind::Ident, "path") if text(1) == "=" => named_path = tokens.get(at + 2).and_then(Token::string),
            (Kind::Ident, "include") if text(1) == "!" => {
                let file = tokens.get(at + 3).and_then(Token::string).and_then(|file| join(folder, file));
                found.extend(file.map(|file| Child { candidates: vec![file], owns_folder: true }));
            }
            (Kind::Ident, "mod") if text(2) == ";" => {
                let names = inline.iter().fold(base.clone(), |base, name| join(&base, name).unwrap_or_default());
                found.push(match named_path.take() {
                    Some(file) => {
                        let place = if inline.is_empty() { folder } else { &names };
                        Child { candidates: join(place, file).into_iter().collect(), owns_folder: true }
                    }
                    None => child_by_name(module_path(&names, text(1))),
                });
            }
            (Kind::Punct, ";") => named_path = None,
            (Kind::Close | Kind::Ident | Kind::Literal | Kind::Open | Kind::Punct, _) => {}
        }
    }
    found
}

fn module_path(folder: &str, name: &str) -> String {
    join(folder, name.trim_start_matches("r#")).unwrap_or_default()
}

fn child_by_name(path: String) -> Child {
    Child { candidates: vec![format!("{path}.rs"), format!("{path}/mod.rs")], owns_folder: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<String> {
        let manifest = ("a/Cargo.toml", "[[bin]]\nname = \"x\"\npath = \"fuzz_targets/x.rs\"\n");
        let all: Vec<_> = [manifest].into_iter().chain(files.iter().copied()).collect();
        unlinked(&Tree::of(&all)).into_iter().map(|finding| finding.file).collect()
    }

    #[test]
    fn a_file_that_no_module_names_is_found() {
        let found = files(&[
            ("a/src/lib.rs", "mod b;"),
            ("a/src/b.rs", ""),
            ("a/src/old.rs", ""),
            ("stray.rs", ""),
            ("a/src/b/c.rs", ""),
        ]);
        assert_eq!(found, ["a/src/b/c.rs", "a/src/old.rs", "stray.rs"]);
    }

    #[test]
    fn a_commented_out_module_does_not_link_its_file() {
        assert_eq!(files(&[("a/src/lib.rs", "// mod b;"), ("a/src/b.rs", "")]), ["a/src/b.rs"]);
    }

    #[test]
    fn every_way_to_link_a_file_is_followed() {
        let found = files(&[
            ("a/build.rs", ""),
            ("a/fuzz_targets/x.rs", ""),
            (
                "a/src/lib.rs",
                "pub mod b;\nmod d { mod e; }\n#[path = \"odd/name.rs\"]\nmod odd;\ninclude!(\"part.rs\");",
            ),
            ("a/src/b/mod.rs", "mod c;"),
            ("a/src/b/c.rs", "#[cfg(test)]\nmod tests;"),
            ("a/src/b/c/tests.rs", ""),
            ("a/src/d/e.rs", ""),
            ("a/src/odd/name.rs", "mod beside;"),
            ("a/src/odd/beside.rs", ""),
            ("a/src/part.rs", ""),
            ("a/src/bin/tool.rs", ""),
            ("a/tests/one.rs", "mod common;"),
            ("a/tests/common/mod.rs", ""),
            ("a/tests/two/main.rs", "mod more;"),
            ("a/tests/two/more.rs", ""),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_helper_folder_of_the_tests_that_no_test_uses_is_found() {
        assert_eq!(files(&[("a/tests/one.rs", ""), ("a/tests/common/mod.rs", "")]), ["a/tests/common/mod.rs"]);
    }

    #[test]
    fn a_file_that_is_not_rust_is_found_with_its_line() {
        assert_eq!(files(&[("a/src/lib.rs", "fn a( {")]), ["a/src/lib.rs"]);
    }
}
