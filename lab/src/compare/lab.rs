//! What a comparison asks of a lab.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// A lab that was built and waits for its network's time to begin; dropping it removes it.
pub(crate) trait Lab {
    /// Begins a command that runs at a place and does not outlive this process.
    fn command(&self, place: Place, program: &Path) -> Result<Command, LabError>;

    /// Gives the sites, the first one first.
    fn sites(&self) -> Vec<Site>;

    /// Gives the port of every site for TLS and QUIC.
    fn port(&self) -> u16;

    /// Leads what comes to that port of a site to another one, where a server of this site alone listens.
    fn lead(&self, site: usize, port: u16) -> Result<(), LabError>;

    /// Gives a folder for files of the run, which goes with the lab.
    fn folder(&self) -> &Path;

    /// Gives the certificates of the servers.
    fn certificates(&self) -> Certificates;

    /// Begins the time of the scenario: what happens at 3 s happens 3 s from now.
    fn begin(&mut self) -> Result<Instant, LabError>;

    /// Ends the time of the scenario and tells what passed over the access links.
    fn finish(&mut self) -> Traffic;
}

/// A site: what clients find there, and what its servers find behind it.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Its addresses.
    pub(crate) addresses: Vec<IpAddr>,
    /// Where its servers find the backend.
    pub(crate) backend: IpAddr,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// Behind the server, where the service is.
    Backend,
    /// At the end of the access link.
    Client,
    /// In the data centre.
    Server,
}

/// Files of certificates.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    /// The authority.
    pub(crate) ca: PathBuf,
    /// The server's certificate.
    pub(crate) cert: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
}

/// What passed over the access links.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Traffic {
    /// Bytes of IP packets, both ways.
    pub(crate) bytes: u64,
    /// Why the emulation was not true to the scenario, if it was not.
    pub(crate) void: Option<String>,
}

/// Why a lab cannot be built; the reason is for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LabError(pub(crate) String);

impl LabError {
    /// Takes the words of another error.
    pub(crate) fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}
