//! One `up` at a time in a data folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::DataDirError;

/// The right to change a data folder, until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a folder, or says who has it.
    pub(crate) fn take(folder: &Path) -> Result<Self, DataDirError> {
        let path = folder.join(LOCK_FILE);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.map_err(DataDirError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Without a number the message is only less helpful.
                let _ = (&mut file).take(PROCESS_ID_BYTES_MAX).read_to_string(&mut text);
                return Err(DataDirError::InUse { folder: folder.to_owned(), process: text.trim().parse().ok() });
            }
            Err(TryLockError::Error(error)) => return Err(DataDirError::io("lock", &path)(error)),
        }
        let noted =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        noted.map_err(DataDirError::io("write", &path))?;
        Ok(Self { _file: file })
    }
}

/// The file that is locked; it holds the number of the process.
const LOCK_FILE: &str = "up.lock";

/// Bytes of a process's number: 10 digits and a line end, with room to spare.
const PROCESS_ID_BYTES_MAX: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Lock::take(folder.path()).expect("free");
        let error = Lock::take(folder.path()).expect_err("taken").to_string();
        let expected = format!("is in use by another `ropeway up` (process {})", std::process::id());
        assert!(error.contains(&expected), "{error}");
        drop(first);
        assert!(Lock::take(folder.path()).is_ok(), "a dropped lock is free again");
    }
}
