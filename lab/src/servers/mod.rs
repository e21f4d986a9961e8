//! The servers of a lab: name servers, the built-in origin, and all who meddle, ready for faults to send traffic to.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

mod authority;
pub(crate) mod dns;
pub(crate) mod impostor;
pub(crate) mod middlebox;
mod origin;
mod room;
mod web;

pub use authority::{Authority, AuthorityError};

use self::{
    dns::{Answers, NameServer},
    impostor::Balancer,
    middlebox::Meddling,
    room::Room,
};
use crate::{
    os::namespace,
    topology::{
        Place, ToolError, Topology,
        plan::{NAME_SERVER, ORIGIN_NAME, SitePlan},
    },
};

/// The servers of a lab; dropping it ends them.
#[derive(Debug)]
pub(crate) struct Servers {
    /// Certificates, and where their files are.
    pub(crate) authority: Authority,
    _name_servers: Vec<NameServer>,
    _rooms: Vec<Room>,
}

/// Why the servers of a lab cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServersError {
    /// A certificate cannot be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A server cannot listen.
    #[error("cannot start the servers in {namespace}: {source}")]
    Listen {
        /// The namespace.
        namespace: String,
        /// What the system says.
        source: io::Error,
    },
    /// The name server does not answer.
    #[error("the name server does not answer within {} s", NAME_SERVER_WAIT_MAX.as_secs())]
    NameServer,
    /// A name server cannot be started.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

impl Servers {
    /// Starts them, with the built-in origin if it is wanted.
    pub(crate) fn start(topology: &Topology, seed: u64, with_origin: bool) -> Result<Self, ServersError> {
        let folder = topology.slot.folder();
        let authority = Authority::make(&folder, &[ORIGIN_NAME, "test", "*.test"], topology.plan.addresses())?;
        let mut name_servers = Vec::new();
        for answers in [Answers::True, Answers::Hijacked, Answers::Loopback, Answers::NoSuchName] {
            let place = if answers == Answers::True { Place::Server } else { Place::Isp };
            name_servers.push(NameServer::start(answers, &topology.plan, seed, &topology.namespace(place), &folder)?);
        }
        let open = |place, serve: Box<dyn FnOnce() -> io::Result<()> + Send>| {
            let namespace = topology.namespace(place);
            let opened = Room::open(&namespace, move || async move { serve() });
            opened.map_err(|source| ServersError::Listen { namespace, source })
        };
        let (at_isp, at_server) = (authority.clone(), authority.clone());
        let sites = if with_origin { topology.plan.sites.clone() } else { Vec::new() };
        let mut rooms = vec![
            open(Place::Isp, Box::new(move || provider(&at_isp)))?,
            open(Place::Server, Box::new(move || server(&at_server, &sites)))?,
        ];
        if with_origin {
            rooms.push(open(Place::Backend, Box::new(origin::start_service))?);
        }
        wait_for_name_server(&topology.namespace(Place::Server))?;
        Ok(Self { authority, _name_servers: name_servers, _rooms: rooms })
    }
}

/// Starts what stands at the provider.
fn provider(authority: &Authority) -> io::Result<()> {
    Meddling::ALL.into_iter().try_for_each(middlebox::start)?;
    impostor::start_portal()?;
    impostor::start_wrong_certificate(authority)?;
    impostor::start_hijacked_site(authority)
}

/// Starts what stands at the sites, with fronts at these.
fn server(authority: &Authority, sites: &[SitePlan]) -> io::Result<()> {
    Balancer::ALL.into_iter().try_for_each(|balancer| impostor::start_balancer(balancer, authority))?;
    origin::start_fronts(sites, &authority.origin())
}

/// Asks the name server over TCP until it accepts, so that a lab's first program finds it.
fn wait_for_name_server(namespace: &str) -> Result<(), ServersError> {
    let address = SocketAddr::from((NAME_SERVER, 53));
    let is_there = namespace::inside(namespace, || {
        let end = Instant::now() + NAME_SERVER_WAIT_MAX;
        while Instant::now() < end {
            if TcpStream::connect(address).is_ok() {
                return true;
            }
            std::thread::sleep(NAME_SERVER_WAIT);
        }
        false
    });
    if is_there.unwrap_or(false) { Ok(()) } else { Err(ServersError::NameServer) }
}

/// Longest wait for the name server to listen; it takes some 10 ms.
const NAME_SERVER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause between two looks whether it does.
const NAME_SERVER_WAIT: Duration = Duration::from_millis(5);
