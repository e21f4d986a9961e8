//! Licences: everything we build on may be used on terms from a short list.
//!
//! The expressions are SPDX's (annex "SPDX licence expressions" of the SPDX specification): `OR`, `AND`, `WITH` and
//! parentheses, and the slash that older manifests write for `OR`.

use crate::{Finding, Workspace};

/// Licences whose terms we accept for any package.
pub const ACCEPTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages accepted on other terms: package, licence, reason.
///
/// MPL-2.0 belongs here: it asks that changes to the package's own files stay open, so each use is looked at.
pub const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// Finds the packages of others that cannot be used on accepted terms.
#[must_use]
pub fn unacceptable(workspace: &Workspace, exceptions: &[(&str, &str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut unused = exceptions.to_vec();
    for package in workspace.packages.iter().filter(|package| package.manifest.is_none()) {
        let name = package.name.as_str();
        let expression = package.licence.as_deref().unwrap_or("none stated");
        let satisfied = |with_exceptions: bool| {
            let accepts = |licence: &str| {
                let excepted = exceptions.iter().any(|(package, terms, _)| *package == name && *terms == licence);
                ACCEPTED.contains(&licence) || (with_exceptions && excepted)
            };
            satisfiable(expression, &accepts)
        };
        match (satisfied(false), satisfied(true)) {
            (Ok(true), _) => {}
            (_, Ok(true)) => unused.retain(|(package, ..)| *package != name),
            (_, Ok(false)) => {
                let message = format!(
                    "`{name}` is licensed `{expression}`, which is not on the list: use another package, or add it with a \
                     reason to EXCEPTIONS of tidy/src/licences.rs"
                );
                findings.push(Finding::new("Cargo.lock", 1, message));
            }
            (_, Err(reason)) => {
                let message = format!("`{name}` has the licence `{expression}`, which cannot be read: {reason}");
                findings.push(Finding::new("Cargo.lock", 1, message));
            }
        }
    }
    for (package, licence, _) in unused {
        let message = format!("EXCEPTIONS accepts {licence} for `{package}`, which does not need it: delete the entry");
        findings.push(Finding::new("tidy/src/licences.rs", 1, message));
    }
    findings
}

/// Tells whether an SPDX expression can be satisfied with licences that `accepts` takes.
///
/// A licence with an exception is asked for as one, as in `Apache-2.0 WITH LLVM-exception`.
///
/// # Errors
///
/// When the expression is malformed, with the reason.
pub fn satisfiable(expression: &str, accepts: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, accepts };
    let satisfied = parser.any_of()?;
    match parser.words.first() {
        Some(word) => Err(format!("unexpected `{word}`")),
        None => Ok(satisfied),
    }
}

/// A recursive descent over the words of an expression: `any_of` = `all_of` OR …; `all_of` = `term` AND ….
struct Parser<'a> {
    words: &'a [&'a str],
    accepts: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    fn any_of(&mut self) -> Result<bool, String> {
        let mut satisfied = self.all_of()?;
        while self.take("OR") {
            satisfied |= self.all_of()?;
        }
        Ok(satisfied)
    }

    fn all_of(&mut self) -> Result<bool, String> {
        let mut satisfied = self.term()?;
        while self.take("AND") {
            satisfied &= self.term()?;
        }
        Ok(satisfied)
    }

    fn term(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let satisfied = self.any_of()?;
            return if self.take(")") { Ok(satisfied) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let licence = self.name()?;
        if self.take("WITH") {
            let exception = self.name()?;
            return Ok((self.accepts)(&format!("{licence} WITH {exception}")));
        }
        Ok((self.accepts)(licence))
    }

    fn name(&mut self) -> Result<&'a str, String> {
        match self.words {
            [word, rest @ ..] if !matches!(*word, "(" | ")" | "AND" | "OR" | "WITH") => {
                self.words = rest;
                Ok(word)
            }
            [word, ..] => Err(format!("a licence should stand where `{word}` does")),
            [] => Err("it ends where a licence should stand".to_owned()),
        }
    }

    fn take(&mut self, word: &str) -> bool {
        match self.words {
            [first, rest @ ..] if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imports::Package;

    fn accepts(licence: &str) -> bool {
        matches!(licence, "MIT" | "ISC" | "Apache-2.0 WITH LLVM-exception")
    }

    #[test]
    fn expressions_are_evaluated_with_and_before_or() {
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR GPL-3.0-only", true),
            ("MIT/GPL-3.0-only", true),
            ("MIT AND GPL-3.0-only", false),
            ("MIT AND ISC", true),
            ("MIT OR ISC AND GPL-3.0-only", true),
            ("(MIT OR ISC) AND GPL-3.0-only", false),
            ("(MIT OR GPL-3.0-only) AND ISC", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
            ("MIT WITH LLVM-exception", false),
        ] {
            assert_eq!(satisfiable(expression, &accepts), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn malformed_expressions_are_errors() {
        for expression in ["", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT ISC", "MIT WITH", "()"] {
            assert!(satisfiable(expression, &accepts).is_err(), "{expression}");
        }
    }

    fn judge(name: &str, licence: Option<&str>, exceptions: &[(&str, &str, &str)]) -> usize {
        let package = Package { name: name.to_owned(), licence: licence.map(str::to_owned), ..Package::default() };
        unacceptable(&Workspace { packages: vec![package] }, exceptions).len()
    }

    #[test]
    fn a_package_on_other_terms_or_on_none_is_found() {
        assert_eq!(judge("good", Some("MIT OR Apache-2.0"), &[]), 0);
        assert_eq!(judge("bad", Some("MIT AND OpenSSL"), &[]), 1);
        assert_eq!(judge("silent", None, &[]), 1);
    }

    #[test]
    fn an_exception_holds_for_its_package_and_licence_and_must_be_needed() {
        let reason = [("files", "MPL-2.0", "used unchanged")];
        assert_eq!(judge("files", Some("MPL-2.0"), &reason), 0);
        assert_eq!(judge("files", Some("GPL-3.0-only"), &reason), 2);
        assert_eq!(judge("files", Some("MIT"), &reason), 1);
        assert_eq!(judge("other", Some("MPL-2.0"), &reason), 2);
    }
}
