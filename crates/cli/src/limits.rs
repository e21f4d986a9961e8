//! What the operating system allows this process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the number of files and sockets this process may have open to what its owner allows at most, and gives that number.
///
/// Systems start processes with a low number, often 1,024, for the sake of programs that use select(2); none here does.
pub(crate) fn raise_open_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let current = limit.current;
    limit.current = limit.maximum;
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => limit.current.unwrap_or(u64::MAX),
        // Some systems name a maximum that they do not grant; the old number still holds.
        Err(_) => current.unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_may_be_open_as_the_owner_allows() {
        let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(raise_open_files(), allowed);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), allowed);
    }
}
