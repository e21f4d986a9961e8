//! Which of the four labs this one is, and the left-overs of those that were killed.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use rustix::process::{Signal, kill_process};

use super::{Place, TopologyError};
use crate::os::namespace;

/// The right to build the lab of one number, until it is dropped or the process ends, however it ends.
///
/// Dropping it removes everything that bears the number.
#[derive(Debug)]
pub(crate) struct Slot {
    number: u8,
    _lock: File,
}

impl Slot {
    /// Takes the lowest free number and removes what killed labs left behind, of any number.
    pub(crate) fn take() -> Result<Self, TopologyError> {
        let folder = Path::new(FOLDER);
        fs::create_dir_all(folder).map_err(TopologyError::folder(folder))?;
        // Two labs that start together must not take each other's look at a free number for a running lab.
        let starting = open(&folder.join(STARTING_FILE))?;
        starting.lock().map_err(TopologyError::folder(folder))?;
        let mut taken = None;
        for number in 0..LABS_MAX {
            let lock = open(&folder.join(format!("{number}.lock")))?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(TopologyError::folder(folder)(error)),
            }
            sweep(number)?;
            if taken.is_none() {
                taken = Some(Self { number, _lock: lock });
            }
        }
        let slot = taken.ok_or(TopologyError::AllTaken)?;
        let own = slot.folder();
        fs::create_dir_all(&own).map_err(TopologyError::folder(&own))?;
        Ok(slot)
    }

    /// Gives the number, from 0.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Gives the folder of this lab's files.
    pub(crate) fn folder(&self) -> PathBuf {
        lab_folder(self.number)
    }

    /// Gives the name of the namespace at `place`.
    pub(crate) fn namespace(&self, place: Place) -> String {
        place.namespace(self.number)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next start.
        let _ = sweep(self.number);
    }
}

/// Gives the folder of a lab's files.
pub(crate) fn lab_folder(number: u8) -> PathBuf {
    Path::new(FOLDER).join(number.to_string())
}

/// Removes what bears the number: processes inside its namespaces, the namespaces, its files.
fn sweep(number: u8) -> Result<(), TopologyError> {
    for place in Place::ALL {
        let name = place.namespace(number);
        if namespace::exists(&name) {
            end_processes(&name);
            remove_namespace(&name)?;
        }
        remove_folder(&Path::new(RESOLVER_FOLDER).join(&name))?;
    }
    // Only if it is empty: others may have files there.
    let _ = fs::remove_dir(RESOLVER_FOLDER);
    remove_folder(&lab_folder(number))
}

/// Kills the processes inside a namespace, those included that they start meanwhile.
fn end_processes(name: &str) {
    for _ in 0..KILL_ROUNDS_MAX {
        let inside = namespace::processes(name).unwrap_or_default();
        if inside.is_empty() {
            return;
        }
        for process in inside {
            // It may have ended by itself.
            let _ = kill_process(process, Signal::KILL);
        }
        std::thread::sleep(KILL_ROUND);
    }
}

fn remove_namespace(name: &str) -> Result<(), TopologyError> {
    let path = namespace::path(name);
    match rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH) {
        // Not mounted: a lab was killed between making the file and mounting the namespace on it.
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(error) => return Err(TopologyError::LeftOver { path, source: error.into() }),
    }
    fs::remove_file(&path).map_err(|source| TopologyError::LeftOver { path, source })
}

fn remove_folder(path: &Path) -> Result<(), TopologyError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(TopologyError::LeftOver { path: path.to_owned(), source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn open(path: &Path) -> Result<File, TopologyError> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(TopologyError::folder(path))
}

/// Labs that can run side by side on one machine.
pub(crate) const LABS_MAX: u8 = 4;

/// Where labs keep their files.
const FOLDER: &str = "/run/ropeway-lab";

/// The file whose lock a lab holds while it starts.
const STARTING_FILE: &str = "starting.lock";

/// Where `ip netns exec` finds files to put over those of `/etc` (ip-netns(8)).
pub(super) const RESOLVER_FOLDER: &str = "/etc/netns";

/// How often the processes of a namespace are killed before it is given up: each round finds those started meanwhile.
const KILL_ROUNDS_MAX: u32 = 50;

/// Pause between two of those rounds, in which the killed disappear.
const KILL_ROUND: std::time::Duration = std::time::Duration::from_millis(10);
