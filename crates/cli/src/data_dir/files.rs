//! Files of the data folder: written whole or not at all, secrets readable by their owner alone.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ropeway_net::pem::looks_like;

use super::DataDirError;

/// Who may read a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    /// Everyone: certificates.
    Public,
    /// The owner alone.
    Secret,
}

/// Makes a folder that only its owner can enter; an existing one stays as it is.
pub(crate) fn make_folder(path: &Path) -> Result<(), DataDirError> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).map_err(DataDirError::io("make the folder", path))
}

/// Reads a file of text; `None` when there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, DataDirError> {
    let text = content(path)?.map(String::from_utf8).transpose();
    text.map_err(|error| {
        DataDirError::damaged(path, format!("this is no text, it looks like {}", looks_like(error.as_bytes())))
    })
}

/// Reads a file, whatever is in it; `None` when there is none.
pub(crate) fn content(path: &Path) -> Result<Option<Vec<u8>>, DataDirError> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DataDirError::io("read", path)(error)),
    }
}

/// Reads a file, or writes what `make` gives when there is none. A secret that others could read is closed to them.
pub(crate) fn read_or_make(
    path: &Path,
    access: Access,
    make: impl FnOnce() -> Result<String, DataDirError>,
) -> Result<String, DataDirError> {
    let Some(text) = read(path)? else {
        let text = make()?;
        write(path, access, &text)?;
        return Ok(text);
    };
    if access == Access::Secret {
        close(path);
    }
    Ok(text)
}

/// Writes a file so that a reader, or a crash, meets the old or the new one and nothing between.
pub(crate) fn write(path: &Path, access: Access, text: &str) -> Result<(), DataDirError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let attempt = || {
        // What a crashed process of the same number left.
        match fs::remove_file(&draft) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(access.mode()).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    attempt().map_err(|error| {
        // Nothing more can be done about the draft.
        let _ = fs::remove_file(&draft);
        DataDirError::io("write", path)(error)
    })
}

/// Takes away everyone else's right to read; a file system without rights is not the place to insist.
pub(super) fn close(path: &Path) {
    let Ok(metadata) = fs::metadata(path) else { return };
    if metadata.permissions().mode() & OTHERS == 0 {
        return;
    }
    let closed = fs::set_permissions(path, Permissions::from_mode(Access::Secret.mode()));
    tracing::warn!(file = %path.display(), closed = closed.is_ok(), "secret was readable by others");
}

impl Access {
    const fn mode(self) -> u32 {
        match self {
            Self::Public => 0o644,
            Self::Secret => 0o600,
        }
    }
}

/// Mode of the folder: its owner's alone.
const FOLDER_MODE: u32 = 0o700;

/// The bits of a mode that concern everyone but the owner.
const OTHERS: u32 = 0o077;

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn a_secret_and_its_folder_are_their_owners_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("a/b");
        make_folder(&inner).expect("made");
        write(&inner.join("key"), Access::Secret, "1").expect("written");
        write(&inner.join("pem"), Access::Public, "2").expect("written");
        assert_eq!((mode(&inner), mode(&inner.join("key"))), (0o700, 0o600));
        assert_eq!(mode(&inner.join("pem")) & 0o600, 0o600);
    }

    #[test]
    fn a_file_is_made_once_and_leaves_no_draft() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let first = read_or_make(&path, Access::Secret, || Ok("first".to_owned())).expect("made");
        let second = read_or_make(&path, Access::Secret, || panic!("it is there")).expect("read");
        assert_eq!((first.as_str(), second.as_str()), ("first", "first"));
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_secret_that_others_could_read_is_closed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        write(&path, Access::Public, "t").expect("written");
        read_or_make(&path, Access::Secret, || panic!("it is there")).expect("read");
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_draft_of_a_crashed_process_is_no_hindrance() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(folder.path().join(format!(".token.{}.tmp", std::process::id())), "half").expect("written");
        write(&path, Access::Secret, "whole").expect("written");
        assert_eq!(read(&path).expect("readable").as_deref(), Some("whole"));
    }

    #[test]
    fn an_error_names_the_path_and_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        let error = write(&file.join("key"), Access::Secret, "1").expect_err("a file is no folder").to_string();
        assert!(error.starts_with(&format!("cannot write {}: ", file.join("key").display())), "{error}");
        assert!(error.contains("--data-dir"), "{error}");
    }
}
