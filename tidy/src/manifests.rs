//! Rules for `Cargo.toml` and `clippy.toml`: everything that can be said once for the workspace is said there.

use toml::{Table, Value};

use crate::{Finding, Tree, tree::folder_of};

/// Manifests outside the workspace, which cannot inherit from it: folder, reason.
pub const OUTSIDE: &[(&str, &str)] = &[("fuzz", "cargo-fuzz builds it with its own flags and toolchain")];

/// Keys of `[package]` that the workspace sets for all.
const INHERITED: &[&str] = &["edition", "license", "publish", "rust-version", "version"];

/// Finds manifests that set for themselves what the workspace sets for all, or that say nothing of what they are.
#[must_use]
pub fn inheritance(tree: &Tree, outside: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        if outside.iter().any(|(folder, _)| folder_of(path) == *folder) {
            continue;
        }
        let table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                findings.push(Finding::new(path, 1, format!("not TOML: {error}")));
                continue;
            }
        };
        if !inherits(table.get("lints")) {
            findings.push(Finding::new(path, 1, "take the workspace's lints: `[lints]`, `workspace = true`"));
        }
        let package = table.get("package");
        for key in INHERITED.iter().filter(|key| !inherits(package.and_then(|package| package.get(key)))) {
            findings.push(Finding::new(
                path,
                line_of(text, key),
                format!("write `{key}.workspace = true` in `[package]`"),
            ));
        }
        if package.and_then(|package| package.get("description")).is_none() {
            findings.push(Finding::new(path, 1, "say in `description` what the package is"));
        }
        for (name, _) in dependencies(&table).filter(|(_, value)| !inherits(Some(value))) {
            let message =
                format!("give `{name}` its version in [workspace.dependencies] and write `{name}.workspace = true`");
            findings.push(Finding::new(path, line_of(text, name), message));
        }
    }
    findings
}

/// Finds a `clippy.toml` that lacks a line of the root's: the nearest one replaces the root's whole.
#[must_use]
pub fn clippy_settings(tree: &Tree) -> Vec<Finding> {
    let settings = |text: &str| -> Vec<String> {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    let root = settings(tree.text("clippy.toml").unwrap_or_default());
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with("/clippy.toml")) {
        let own = settings(text);
        for line in root.iter().filter(|line| !own.contains(line)) {
            findings.push(Finding::new(
                path,
                1,
                format!("it replaces the root's clippy.toml: repeat its line `{line}`"),
            ));
        }
    }
    if tree.text("crates/core/clippy.toml").is_none() {
        let message = "core needs its own clippy.toml, which forbids the clock, threads and hash maps";
        findings.push(Finding::new("crates/core/clippy.toml", 1, message));
    }
    findings
}

/// Returns the line of `text` (from 1) whose first word is the key `key`; 1 when there is none.
#[must_use]
pub fn line_of(text: &str, key: &str) -> usize {
    let is_key = |line: &str| line.trim_start().strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '.', '=']));
    text.lines().position(is_key).map_or(1, |at| at + 1)
}

fn inherits(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

/// Returns every entry of every dependency table, those for single targets too.
fn dependencies(manifest: &Table) -> impl Iterator<Item = (&str, &Value)> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let places = targets.filter_map(Value::as_table).chain([manifest]);
    let tables = places.flat_map(|place| {
        ["build-dependencies", "dependencies", "dev-dependencies"]
            .into_iter()
            .filter_map(|name| place.get(name)?.as_table())
    });
    tables.flatten().map(|(name, value)| (name.as_str(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"a\"\ndescription = \"A\"\nversion.workspace = true\nedition.workspace = true\n\
                        rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\n\
                        [dependencies]\nbytes.workspace = true\nhttp = { workspace = true, optional = true }\n\n\
                        [lints]\nworkspace = true\n";

    fn judge(manifest: &str) -> Vec<String> {
        inheritance(&Tree::of(&[("crates/a/Cargo.toml", manifest)]), &[]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_manifest_that_inherits_everything_is_clean() {
        assert_eq!(judge(GOOD), [""; 0]);
    }

    #[test]
    fn whatever_a_manifest_sets_for_itself_is_found_with_its_line() {
        for (from, to, found) in [
            ("version.workspace = true\nedition", "version = \"2.0.0\"\nedition", ":4: write `version.workspace"),
            ("license.workspace = true\n", "", ":1: write `license.workspace"),
            ("bytes.workspace = true", "bytes = \"1\"", ":11: give `bytes` its version"),
            ("http = { workspace = true, optional = true }", "http = { path = \"../http\" }", ":12: give `http`"),
            ("[dependencies]", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n[dependencies]", "give `libc`"),
            ("[dependencies]", "[dev-dependencies]\ninsta = \"1\"\n[dependencies]", "give `insta`"),
            ("[dependencies]", "[build-dependencies]\nprotox = \"1\"\n[dependencies]", "give `protox`"),
            ("[lints]\nworkspace = true\n", "", "take the workspace's lints"),
            ("description = \"A\"\n", "", "say in `description`"),
            ("[lints]", "[lints", "not TOML"),
        ] {
            assert!(GOOD.contains(from), "the sample holds {from}");
            let findings = judge(&GOOD.replacen(from, to, 1));
            assert!(findings.len() == 1 && findings[0].contains(found), "{from}: {findings:?}");
        }
    }

    #[test]
    fn a_manifest_outside_the_workspace_is_left_alone() {
        let tree = Tree::of(&[("fuzz/Cargo.toml", "[package]\n"), ("Cargo.toml", "[workspace]\n")]);
        assert_eq!(inheritance(&tree, OUTSIDE), []);
        assert_ne!(inheritance(&tree, &[]), []);
    }

    #[test]
    fn a_nested_clippy_file_that_drops_a_line_of_the_roots_is_found() {
        let core = ("crates/core/clippy.toml", "# Why.\na = true\nb = true\nc = 1\n");
        assert_eq!(clippy_settings(&Tree::of(&[("clippy.toml", "a = true\nb = true\n"), core])), []);
        assert_eq!(clippy_settings(&Tree::of(&[("clippy.toml", "a = true\nd = true\n"), core])).len(), 1);
        assert_eq!(clippy_settings(&Tree::of(&[("clippy.toml", "a = true\n")])).len(), 1);
    }
}
