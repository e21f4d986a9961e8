//! The house rules of the workspace, as functions that a test calls.
//!
//! Every rule takes what it judges as an argument (the files of a [`Tree`], the packages of a [`Workspace`]) and returns
//! what it found, each finding with a file, a line and what to do. `tests/` runs the rules on this workspace; the unit
//! tests beside each rule show it a sample that it must refuse. Nothing here changes a file, and no other crate may
//! depend on this one.
//!
//! ```
//! use ropeway_tidy::{Tree, sources};
//!
//! let tree = Tree::of(&[("crates/net/src/lib.rs", "pub fn dial() {}\n")]);
//! let findings = sources::opening_lines(&tree);
//! assert!(findings[0].to_string().starts_with("crates/net/src/lib.rs:1: "));
//! ```

use std::{env, fmt, path::PathBuf};

pub mod documents;
pub mod imports;
pub mod licences;
pub mod manifests;
pub mod metrics;
pub mod modules;
pub mod purity;
pub mod sources;
pub mod tokens;
pub mod tree;

pub use imports::Workspace;
pub use tree::Tree;

/// One place that breaks a house rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the root of the workspace, with forward slashes.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    /// Makes a finding for a line of a file.
    pub fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Panics with one line for each finding, if there is any.
///
/// # Panics
///
/// When `findings` is not empty: that is its purpose in a test.
pub fn assert_clean(rule: &str, findings: &[Finding]) {
    let list: String = findings.iter().map(|finding| format!("\n  {finding}")).collect();
    assert!(findings.is_empty(), "{rule}:{list}");
}

/// Returns the root folder of this workspace.
///
/// Read when the test runs, not when it is compiled: clones may share one target folder.
///
/// # Panics
///
/// When not run by cargo, which names the folder of the package under test.
#[must_use]
pub fn workspace_root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the package's folder to the tests it runs");
    let mut root = PathBuf::from(package);
    root.pop();
    root
}
