//! The purity of `core`: no clock, no socket, no file, no thread, no randomness of its own, no order that differs by run.

use crate::{
    Finding, Tree,
    tokens::{Token, find, find_path, tokens},
};

/// Names that `core` never uses, as tokens apart, each with what to do instead.
const NAMES: &[(&[&str], &str)] = &[
    (&["HashMap"], "its order differs from run to run: use BTreeMap"),
    (&["HashSet"], "its order differs from run to run: use BTreeSet"),
    (&["Instant"], "time is an argument: take a ropeway_core::Time"),
    (&["RandomState"], "its seed differs from run to run: use an ordered collection"),
    (&["SystemTime"], "time is an argument: take a ropeway_core::Time"),
    (&["TcpListener"], "core has no sockets: do this in net"),
    (&["TcpStream"], "core has no sockets: do this in net"),
    (&["UdpSocket"], "core has no sockets: do this in net"),
    (&["getrandom"], "the seed is an argument: use rand_pcg with it"),
    (&["rand", ":", ":"], "the seed is an argument: use rand_pcg with it"),
    (&["thread_rng"], "the seed is an argument: use rand_pcg with it"),
    (&["tokio"], "core runs nothing: do this in net or in a role"),
];

/// Modules of the standard library that `core` never uses, each with what to do instead.
const STD_MODULES: &[(&str, &str)] = &[
    ("env", "configuration is an argument"),
    ("fs", "core has no files: take the bytes as an argument"),
    ("process", "core starts nothing"),
    ("thread", "core has no threads and never waits: name a deadline in poll_timeout"),
];

/// Finds what would make `core` depend on anything but its arguments; its tests and its build script are free.
#[must_use]
pub fn impurities(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs").filter(|(path, _)| path.starts_with("crates/core/src/")) {
        if path.ends_with("/tests.rs") || path.contains("/tests/") {
            continue;
        }
        let list = match tokens(text) {
            Ok(list) => list,
            Err((line, reason)) => {
                findings.push(Finding::new(path, line, reason));
                continue;
            }
        };
        let mut add = |token: &Token, name: &str, instead: &str| {
            findings.push(Finding::new(path, token.line, format!("core may not use `{name}`: {instead}")));
        };
        for (name, instead) in NAMES {
            find(&list, name).for_each(|token| add(token, &name.concat(), instead));
        }
        for (module, instead) in STD_MODULES {
            let name = format!("std::{module}");
            find_path(&list, "std", module).into_iter().for_each(|token| add(token, &name, instead));
        }
    }
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        impurities(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn every_forbidden_name_is_found_where_it_stands() {
        for bad in [
            "let a = std::time::Instant::now();",
            "let a = SystemTime::now();",
            "let a = rand::random();",
            "let a = thread_rng();",
            "getrandom::fill(&mut a);",
            "tokio::spawn(a);",
            "let a: HashMap<u8, u8>;",
            "let a: std::collections::HashSet<u8>;",
            "let a = std::net::TcpStream::connect(b);",
            "let a: UdpSocket;",
            "std::thread::yield_now();",
            "use std::{io, fs::File};",
        ] {
            let text = format!("//! A file.\n\nfn a() {{\n    {bad}\n}}\n");
            assert_eq!(lines("crates/core/src/a.rs", &text), [4], "{bad}");
        }
    }

    #[test]
    fn comments_strings_tests_and_other_crates_are_free() {
        let bad = "fn a() { Instant::now(); }\n";
        assert_eq!(lines("crates/core/src/a.rs", &format!("// {bad}#[cfg(test)]\nmod tests {{ {bad} }}\n")), [0; 0]);
        for path in
            ["crates/core/src/a/tests.rs", "crates/core/tests/a.rs", "crates/core/build.rs", "crates/net/src/a.rs"]
        {
            assert_eq!(lines(path, bad), [0; 0], "{path}");
        }
    }

    #[test]
    fn names_that_only_resemble_forbidden_ones_are_free() {
        let text =
            "use rand_core::RngCore;\nuse rand_pcg::Pcg32;\nfn rand() {}\nconst ENV: &str = env!(\"OUT_DIR\");\n";
        assert_eq!(lines("crates/core/src/a.rs", text), [0; 0]);
    }
}
