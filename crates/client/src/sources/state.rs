//! The file that outlives the process: the last good access list.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use ropeway_core::wire::list::LIST_BYTES_MAX;

/// A file with a signed list behind a line that tells its version. The signature protects what is in it.
#[derive(Clone, Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// Held while the file is written: two lists may come at once.
    writing: Arc<Mutex<()>>,
}

impl StateFile {
    /// Names the file in a folder. Touches nothing.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { path: folder.join(FILE), writing: Arc::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the document that was kept; `None` if there is none, and the reason where it cannot be used.
    pub(super) fn load(&self) -> Result<Option<Bytes>, String> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut bytes = Vec::new();
        let bytes_max = (HEAD.len() + LIST_BYTES_MAX) as u64;
        file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > bytes_max {
            return Err("it is larger than any list".into());
        }
        let document = bytes.strip_prefix(HEAD).ok_or("it is of no version that this client knows")?;
        Ok(Some(Bytes::copy_from_slice(document)))
    }

    /// Writes a document so that a reader, or a crash, meets the old or the new one and nothing between.
    pub(super) fn store(&self, document: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        // Two processes of one app may write at once.
        let draft = self.path.with_extension(format!("{}.tmp", std::process::id()));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&draft)?;
            file.write_all(HEAD)?;
            file.write_all(document)?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)
        })();
        if written.is_err() {
            // Nothing more can be done about the draft.
            let _ = fs::remove_file(&draft);
        }
        written?;
        // The new name must outlive a crash as well. Where a folder cannot be opened, the system keeps it by itself.
        File::open(folder).map_or(Ok(()), |folder| folder.sync_all())
    }

    /// Moves a file that cannot be used out of the way, where someone may look at it.
    pub(super) fn set_aside(&self) {
        // Where it cannot be moved it is written over by the next list.
        let _ = fs::rename(&self.path, self.path.with_extension("bad"));
    }
}

/// Name of the file.
const FILE: &str = "access-list.state";

/// What the file begins with.
const HEAD: &[u8] = b"ropeway access list state 1\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_back_and_a_newer_one_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path().join("deeper"));
        assert_eq!(file.load(), Ok(None));
        for document in [&b"one"[..], b"another"] {
            file.store(document).unwrap();
            assert_eq!(file.load().unwrap().unwrap(), document);
        }
        let left = fs::read_dir(folder.path().join("deeper")).unwrap().count();
        assert_eq!(left, 1, "no draft is left");
    }

    #[test]
    fn files_that_cannot_be_used_say_why_and_are_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path().into());
        for bytes in [&b""[..], b"ropeway access", b"ropeway access list state 2\nlist", &[0; 300_000]] {
            fs::write(file.path(), bytes).unwrap();
            assert!(file.load().is_err());
            file.set_aside();
            assert_eq!(file.load(), Ok(None));
            assert_eq!(fs::read(folder.path().join("access-list.bad")).unwrap(), bytes);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_and_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let in_the_way = folder.path().join("file");
        fs::write(&in_the_way, "").unwrap();
        assert!(StateFile::new(in_the_way).store(b"list").is_err());
    }
}
