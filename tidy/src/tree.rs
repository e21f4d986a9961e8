//! The files of a checkout, as the rules see them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

/// The files under one root: their paths, and the text of those that are text.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    texts: BTreeMap<String, String>,
    others: BTreeSet<String>,
}

impl Tree {
    /// Reads every file under `root`, less `.git` and what the root's `.gitignore` names.
    ///
    /// Symbolic links are not followed. A file that is not UTF-8 is listed without its text.
    ///
    /// # Errors
    ///
    /// When a folder or a file cannot be read.
    pub fn load(root: &Path) -> io::Result<Self> {
        let ignored = Ignored::parse(&fs::read_to_string(root.join(".gitignore")).unwrap_or_default());
        let mut tree = Self::default();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                if ignored.has(&path, &name) {
                    continue;
                }
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    match String::from_utf8(fs::read(entry.path())?) {
                        Ok(text) => drop(tree.texts.insert(path, text)),
                        Err(_) => drop(tree.others.insert(path)),
                    }
                }
            }
        }
        Ok(tree)
    }

    /// Makes a tree of the given paths and texts, for a rule's own tests.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { texts, others: BTreeSet::new() }
    }

    /// Returns the text files, by path.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns the text files whose name ends in `.extension`, by path.
    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(move |(path, _)| path.rsplit_once('.').is_some_and(|(_, end)| end == extension))
    }

    /// Returns the text of the file at `path`.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Tells whether `path` is a file or a folder of this tree.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        path.is_empty()
            || self.texts.contains_key(path)
            || self.others.contains(path)
            || self.texts.range(inside.clone()..).next().is_some_and(|(other, _)| other.starts_with(&inside))
            || self.others.range(inside.clone()..).next().is_some_and(|other| other.starts_with(&inside))
    }
}

/// What a `.gitignore` of plain names and of paths from the root says; the only two forms this workspace uses.
struct Ignored {
    names: BTreeSet<String>,
    paths: BTreeSet<String>,
}

impl Ignored {
    fn parse(text: &str) -> Self {
        let mut ignored = Self { names: BTreeSet::from([".git".to_owned()]), paths: BTreeSet::new() };
        for line in text.lines().map(|line| line.trim().trim_end_matches('/')) {
            if let Some(path) = line.strip_prefix('/') {
                ignored.paths.insert(path.to_owned());
            } else if !line.is_empty() && !line.starts_with('#') {
                ignored.names.insert(line.to_owned());
            }
        }
        ignored
    }

    fn has(&self, path: &str, name: &str) -> bool {
        self.names.contains(name) || self.paths.contains(path)
    }
}

/// Returns the folder part of `path`, empty for a file at the root.
#[must_use]
pub fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Joins `relative` to `folder` and resolves `.` and `..`; `None` when it leaves the root.
#[must_use]
pub fn join(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_without_what_git_ignores() {
        let root = tempfile::tempdir().expect("a folder for the test");
        for (path, text) in
            [(".gitignore", "/out\n# why\ncache\n"), ("out/a", "a"), ("src/out/b", "b"), ("src/cache/c", "c")]
        {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().expect("a file has a folder")).expect("a folder can be made");
            fs::write(file, text).expect("a file can be written");
        }
        fs::write(root.path().join("picture"), [0xff, 0xfe]).expect("a file can be written");

        let tree = Tree::load(root.path()).expect("the folder can be read");

        let texts: Vec<&str> = tree.texts().map(|(path, _)| path).collect();
        assert_eq!(texts, [".gitignore", "src/out/b"]);
        assert!(tree.has("picture") && tree.has("src/out") && !tree.has("out") && !tree.has("src/o"));
    }

    #[test]
    fn joining_resolves_dots_and_stays_inside() {
        assert_eq!(join("docs/book", "../README.md").as_deref(), Some("docs/README.md"));
        assert_eq!(join("", "./a//b").as_deref(), Some("a/b"));
        assert_eq!(join("docs", "../../secret"), None);
    }
}
