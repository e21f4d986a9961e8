//! Network namespaces: entering them, and finding who is inside.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
};

use rustix::{
    process::Pid,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// Runs `work` on a thread of its own inside the named network namespace and gives what it returns.
///
/// What it opens there (a socket, a TUN device) stays in that namespace wherever it is used later.
///
/// # Errors
///
/// When the namespace does not exist or may not be entered, or no thread can be started.
pub(crate) fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let entered = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, || enter(name).map(|()| work()));
        match entered?.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Moves the calling thread into the named network namespace, for the rest of its life.
///
/// # Errors
///
/// When the namespace does not exist or may not be entered.
pub(crate) fn enter(name: &str) -> io::Result<()> {
    let file = File::open(path(name))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(io::Error::from)
}

/// Tells whether a network namespace of this name exists.
pub(crate) fn exists(name: &str) -> bool {
    path(name).exists()
}

/// Finds the processes whose network namespace is the named one; this process is never among them.
pub(crate) fn processes(name: &str) -> io::Result<Vec<Pid>> {
    let wanted = identity(&path(name))?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end while we look.
        let is_inside = identity(&entry.path().join("ns/net")).is_ok_and(|identity| identity == wanted);
        if is_inside && number != std::process::id().cast_signed() {
            found.extend(Pid::from_raw(number));
        }
    }
    Ok(found)
}

/// Gives where `ip netns` keeps the namespace of this name.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// A namespace is known by the device and the inode of its file (namespaces(7)).
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The folder of named network namespaces (ip-netns(8)).
pub(crate) const FOLDER: &str = "/run/netns";
