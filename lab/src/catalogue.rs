//! The scenarios there are: files of a folder, found by name.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use ropeway_core::sim::{Scenario, scenario::ScenarioError};
use serde::Serialize;

/// A folder of scenario files.
#[derive(Clone, Debug)]
pub struct Catalogue {
    folder: PathBuf,
}

/// A scenario as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the variant, if it is one.
    pub variant: Option<String>,
    /// What it is, in a line.
    pub summary: String,
    /// What its numbers rest on.
    pub basis: String,
    /// Where they come from.
    pub source: String,
    /// By how much its times are shorter than the real ones.
    pub scaled: Option<u32>,
}

/// Why a scenario cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// The folder of scenarios cannot be read.
    #[error("no scenarios in {}: {source}; name their folder with --scenario-dir", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file of a scenario cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file has a mistake.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// There is no scenario of this name.
    #[error("no scenario `{name}`{}; `ropeway-lab list` shows all", nearest.as_ref().map(|name| format!(", did you mean `{name}`?")).unwrap_or_default())]
    Unknown {
        /// The name asked for.
        name: String,
        /// The most similar name there is.
        nearest: Option<String>,
    },
}

impl Catalogue {
    /// Makes a catalogue of the files `*.toml` in a folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Chooses the folder: the one asked for, else `./scenarios`, else the one of the checkout the lab was built in.
    #[must_use]
    pub fn find(asked: Option<&Path>) -> Self {
        let here = Path::new("scenarios");
        match asked {
            Some(folder) => Self::new(folder.to_owned()),
            None if here.is_dir() => Self::new(here.to_owned()),
            None => Self::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")),
        }
    }

    /// Lists the names, in order.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, CatalogueError> {
        let failed = |source| CatalogueError::Folder { folder: self.folder.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "toml")
                && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Reads a scenario, or of a file `NAME.toml` that is named by its path, that.
    ///
    /// A variant is named behind a colon.
    ///
    /// # Errors
    ///
    /// When there is none of this name, or its file cannot be read or has a mistake.
    pub fn scenario(&self, name: &str) -> Result<Scenario, CatalogueError> {
        let (name, variant) = match name.rsplit_once(':') {
            Some((name, variant)) => (name, Some(variant)),
            None => (name, None),
        };
        let path = Path::new(name);
        let text = match path.extension() {
            Some(extension) if extension == "toml" => {
                fs::read_to_string(path).map_err(|source| CatalogueError::Read { path: path.to_owned(), source })?
            }
            _ => self.text(name)?,
        };
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or(name);
        Ok(Scenario::parse(name, &text, variant)?)
    }

    /// Lists every scenario, each followed by its variants.
    ///
    /// # Errors
    ///
    /// When the folder or a file cannot be read, or a file has a mistake.
    pub fn entries(&self) -> Result<Vec<Entry>, CatalogueError> {
        let mut entries = Vec::new();
        for name in self.names()? {
            let text = self.text(&name)?;
            let variants = Scenario::variants(&name, &text)?.into_iter().map(Some);
            for variant in [None].into_iter().chain(variants) {
                let scenario = Scenario::parse(&name, &text, variant.as_deref())?;
                let Scenario { name, variant, summary, basis, source, scaled, .. } = scenario;
                entries.push(Entry { scenario: name, variant, summary, basis, source, scaled });
            }
        }
        Ok(entries)
    }

    /// Gives the file of a scenario, whether or not it exists.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.toml"))
    }

    /// Reads the text of a scenario.
    ///
    /// # Errors
    ///
    /// When there is none of this name, or its file cannot be read.
    pub fn text(&self, name: &str) -> Result<String, CatalogueError> {
        let path = self.path(name);
        if name.contains('/') || !path.is_file() {
            let nearest = nearest(name, self.names()?);
            return Err(CatalogueError::Unknown { name: name.to_owned(), nearest });
        }
        fs::read_to_string(&path).map_err(|source| CatalogueError::Read { path, source })
    }
}

/// Finds the most similar name that is similar enough to be what was meant.
fn nearest(name: &str, names: Vec<String>) -> Option<String> {
    let likeness = |other: &String| strsim::jaro_winkler(name, other);
    let best = names.into_iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)))?;
    (likeness(&best) >= LIKENESS_MIN).then_some(best)
}

/// Least likeness of a name that is suggested; 0.7 is what clap takes for its own suggestions.
const LIKENESS_MIN: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_met_with_the_nearest_one() {
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["elevator.toml", "subway.toml", "notes.md"] {
            fs::write(folder.path().join(file), "summary = \"\"\n").expect("a file can be written");
        }
        let catalogue = Catalogue::new(folder.path().to_owned());

        assert_eq!(catalogue.names().expect("readable"), ["elevator", "subway"]);
        assert!(catalogue.text("elevator").is_ok());
        let error = catalogue.text("elevater").expect_err("misspelt").to_string();
        assert!(error.contains("did you mean `elevator`?"), "{error}");
        let error = catalogue.text("../elevator").expect_err("outside").to_string();
        assert!(error.contains("`ropeway-lab list` shows all"), "{error}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named_with_the_option() {
        let error = Catalogue::new(PathBuf::from("/nowhere")).names().expect_err("no folder").to_string();
        assert!(error.contains("/nowhere") && error.contains("--scenario-dir"), "{error}");
    }
}
