//! The namespaces of a lab and what joins them: made, addressed and removed by the lab alone.

use std::{
    io,
    path::{Path, PathBuf},
};

mod build;
pub(crate) mod plan;
mod slot;
mod tool;

pub(crate) use build::{Pipe, Topology, client_addresses, client_routes};
pub(crate) use slot::{LABS_MAX, Slot, lab_folder};
pub(crate) use tool::inside;
pub use tool::{Tool, ToolError};

/// A network namespace of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Where a service behind the gateway runs.
    Backend,
    /// Where the program under test runs.
    Client,
    /// The router of the Internet provider: NAT and faults.
    Isp,
    /// Where origins, gateways and name servers run.
    Server,
}

impl Place {
    /// Every place.
    pub const ALL: [Self; 4] = [Self::Backend, Self::Client, Self::Isp, Self::Server];

    /// Gives the name of this place's namespace in the lab of a number, as `ip netns` knows it.
    #[must_use]
    pub fn namespace(self, lab: u8) -> String {
        let place = match self {
            Self::Backend => "backend",
            Self::Client => "client",
            Self::Isp => "isp",
            Self::Server => "server",
        };
        format!("rwlab{lab}-{place}")
    }
}

/// Why a lab cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// As many labs are running as can be.
    #[error("{LABS_MAX} labs are running, which is the most; wait for one to end")]
    AllTaken,
    /// A network device cannot be made.
    #[error("cannot create the network device {name}: {source}")]
    Device {
        /// Its name.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// A file or folder of the lab cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What a killed lab left behind cannot be removed.
    #[error("cannot remove {}, which a killed lab left behind: {source}", path.display())]
    LeftOver {
        /// What is left.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A setting of a namespace cannot be written.
    #[error("cannot set {key} in {namespace}: {source}")]
    Setting {
        /// The setting, as in `sysctl`.
        key: &'static str,
        /// The namespace.
        namespace: String,
        /// What the system says.
        source: io::Error,
    },
    /// A network tool refuses.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

impl TopologyError {
    fn folder(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Folder { path, source }
    }
}
