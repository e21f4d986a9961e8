//! Files of the data folder that hold the gateway's own keys: written whole or not at all, readable by their owner alone.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ropeway_net::pem::looks_like;

/// Reads a file; `None` when there is none.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
    String::from_utf8(content).map(Some).map_err(|error| {
        let told = format!("this is no text, it looks like {}", looks_like(error.as_bytes()));
        io::Error::new(ErrorKind::InvalidData, told)
    })
}

/// Takes away everyone else's right to a file, if it is one; a file system without rights is not the place to insist.
pub(crate) fn close(path: &Path) {
    let Ok(file) = fs::File::open(path) else { return };
    let is_open = |metadata: fs::Metadata| metadata.is_file() && metadata.permissions().mode() & OTHERS != 0;
    if file.metadata().is_ok_and(is_open) {
        let closed = file.set_permissions(Permissions::from_mode(MODE));
        tracing::warn!(file = %path.display(), closed = closed.is_ok(), "secret was readable by others");
    }
}

/// Writes a file so that a crash leaves the old or the new one and nothing between.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let attempt = || {
        // What a crashed process of the same number left.
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    attempt().inspect_err(|_| {
        // Nothing more can be done about the draft.
        let _ = fs::remove_file(&draft);
    })
}

/// Mode of a secret: its owner's alone.
const MODE: u32 = 0o600;

/// The bits of a mode that concern everyone but the owner.
const OTHERS: u32 = 0o077;

/// Bytes read of such a file; two keys take some hundred.
const FILE_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_owners_alone_and_leaves_no_draft() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        assert_eq!(read(&path).expect("readable"), None);
        write(&path, "first").expect("written");
        write(&path, "second").expect("written");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, MODE);
        assert_eq!(read(&path).expect("readable").as_deref(), Some("second"));
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_secret_that_others_could_read_is_closed_and_nothing_but_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        fs::write(&path, "open").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("opened");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(read(&path).expect("readable").as_deref(), Some("open"));
        assert_eq!(mode(&path), 0o644, "to read it changes nothing");
        close(&path);
        assert_eq!(mode(&path), MODE);
        let inner = folder.path().join("folder");
        fs::create_dir(&inner).expect("made");
        fs::set_permissions(&inner, Permissions::from_mode(0o755)).expect("opened");
        assert!(read(&inner).is_err());
        close(&inner);
        assert_eq!(mode(&inner), 0o755);
    }
}
