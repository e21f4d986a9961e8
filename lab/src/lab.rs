//! A lab: an emulated network with servers in it, for programs to be run in.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use ropeway_core::sim::{
    Scenario,
    link::{Direction, DirectionSpec},
    trace::{MissingTrace, Traces},
};

use crate::{
    emulator::{Clock, Emulator, Wire},
    live::{Conductor, TraceFileError, conduct, link_seed, read_traces},
    os::{child::dies_with_us, tun},
    report::NetworkReport,
    servers::{Authority, Servers, ServersError},
    topology::{Place, Slot, Tool, ToolError, Topology, TopologyError, inside, plan::Plan},
};

/// A running lab; dropping it ends every process in it and removes it.
///
/// Its network is as the scenario has it from the start, without events and faults, until [`Lab::begin`].
#[derive(Debug)]
pub struct Lab {
    // They end in this order, and the namespaces with the last use of the topology.
    conductor: Conductor,
    servers: Servers,
    emulator: Arc<Emulator>,
    topology: Arc<Topology>,
    scenario: String,
    seed: u64,
}

/// What a lab is to have beside its scenario.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Seed of everything random.
    pub seed: u64,
    /// Whether the built-in origin answers at the sites' addresses; without it the ports are free for another.
    pub with_origin: bool,
    /// Folder of recorded traces, which some scenarios need.
    pub traces: PathBuf,
}

/// Why there is no lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The network cannot be made to follow its scenario.
    #[error("cannot begin the scenario: {0}")]
    Begin(String),
    /// The network cannot be conducted, or changed from outside.
    #[error("cannot start what changes the network: {0}")]
    Conductor(#[source] io::Error),
    /// The emulator cannot be started.
    #[error("cannot start the link emulator: {0}")]
    Emulator(#[source] io::Error),
    /// A recorded trace that an access link needs was not read.
    #[error(transparent)]
    MissingTrace(#[from] MissingTrace),
    /// There is no TUN device to be had.
    #[error("cannot open /dev/net/tun: {0}; load the kernel's module: modprobe tun")]
    NoTun(#[source] io::Error),
    /// The process is not root.
    #[error("a lab makes network namespaces, which takes root; run it with sudo")]
    NotRoot,
    /// A program cannot be found.
    #[error("no program {}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
    },
    /// The servers cannot be started.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// A network tool is missing or refuses.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The namespaces cannot be made.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A recorded trace cannot be played.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
}

impl Lab {
    /// Says what this machine lacks for a lab, before anything is made.
    ///
    /// # Errors
    ///
    /// When the process is not root, there is no TUN device, or a network tool is not installed.
    pub fn check() -> Result<(), LabError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        File::open(tun::DEVICE).map_err(LabError::NoTun)?;
        Tool::ALL.into_iter().try_for_each(|tool| tool.find().map(drop))?;
        Ok(())
    }

    /// Builds a lab for a scenario.
    ///
    /// # Errors
    ///
    /// When the machine lacks something, four labs are running, a recorded trace is missing, or the system refuses.
    pub fn start(scenario: &Scenario, options: &LabOptions) -> Result<Self, LabError> {
        Self::check()?;
        let mut traces = read_traces(scenario, options.seed, &options.traces)?;
        let plan = Plan::of(scenario);
        let specs = specs(scenario, &mut traces)?;
        let (topology, pipes) = Topology::build(Slot::take()?, plan)?;
        let clock = Clock::start();
        let further = pipes.sites.into_iter().map(|(pipe, extra_rtt)| {
            (pipe, [Direction::Down, Direction::Up].map(|direction| delay(direction, extra_rtt / 2)))
        });
        let wires = pipes.access.into_iter().zip(specs).chain(further).enumerate();
        let wires = wires.map(|(link, (pipe, [down, up]))| {
            let seed = |direction| link_seed(options.seed, link, direction);
            Wire::new(pipe, (down, seed(Direction::Down)), (up, seed(Direction::Up)), clock.now())
        });
        let emulator = Arc::new(Emulator::start(wires.collect(), clock).map_err(LabError::Emulator)?);
        let topology = Arc::new(topology);
        let servers = Servers::start(&topology, options.seed, options.with_origin)?;
        let conductor = conduct(&topology, &emulator, scenario, options.seed, traces).map_err(LabError::Conductor)?;
        Ok(Self { conductor, servers, emulator, topology, scenario: name(scenario), seed: options.seed })
    }

    /// Begins the scenario, from its start and with empty links, and gives the moment from which its times count.
    ///
    /// # Errors
    ///
    /// When the network cannot be made what it is from the start.
    pub fn begin(&self) -> Result<Instant, LabError> {
        self.conductor.begin().map_err(LabError::Begin)
    }

    /// Finds a program as a shell does: a name in `PATH`, a path as it is.
    ///
    /// # Errors
    ///
    /// When there is no such program.
    pub fn program(program: impl AsRef<OsStr>) -> Result<PathBuf, LabError> {
        let program = Path::new(program.as_ref());
        let is_executable =
            |file: &Path| fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
        let found = if program.as_os_str().as_encoded_bytes().contains(&b'/') {
            Some(program.to_owned()).filter(|file| is_executable(file))
        } else {
            let path = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&path).map(|folder| folder.join(program)).find(|file| is_executable(file))
        };
        found.ok_or_else(|| LabError::Program { program: program.to_owned() })
    }

    /// Prepares to start a program at a place, with the name servers and the certificates of the lab.
    ///
    /// The program is killed when the thread that starts it ends: start it from the main thread, or from one that waits
    /// for it.
    ///
    /// # Errors
    ///
    /// When there is no such program.
    pub fn command(&self, place: Place, program: impl AsRef<OsStr>) -> Result<Command, LabError> {
        let program = Self::program(program)?;
        let mut command = inside(&self.topology.namespace(place), &program)?;
        let ca_file = &self.servers.authority.ca_file;
        command.envs(TRUST_VARIABLES.iter().map(|name| (*name, ca_file.as_os_str())));
        for name in PROXY_VARIABLES {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        dies_with_us(&mut command);
        Ok(command)
    }

    /// Tells what the network has done since the scenario began.
    #[must_use]
    pub fn report(&self) -> NetworkReport {
        let (timeline, failure) = self.conductor.history();
        let emulated = self.emulator.report();
        let lateness = emulated.as_ref().map(|report| report.lateness).unwrap_or_default();
        let void = match (&emulated, failure) {
            (None, _) => Some("the emulated links were removed under the running lab".to_owned()),
            (_, Some(failure)) => Some(format!("the network did not follow its scenario: {failure}")),
            (Some(_), None) => lateness.is_void().then(|| {
                format!(
                    "the emulator was late by {:.1} ms (p99), so this shows the machine; try again",
                    lateness.p99_ms
                )
            }),
        };
        let mut links = emulated.map(|report| report.wires).unwrap_or_default();
        links.truncate(self.plan().links.len());
        NetworkReport {
            scenario: self.scenario.clone(),
            seed: self.seed,
            timeline,
            links,
            lateness,
            realtime: self.emulator.is_realtime(),
            congestion_control: self.congestion_control(),
            void,
        }
    }

    /// Gives the number of the lab, from 0 to 3.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.topology.slot.number()
    }

    /// Gives the folder of the lab's files, which is removed with it.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.topology.slot.folder()
    }

    /// Gives the addresses of the lab.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.topology.plan
    }

    /// Leads what comes to a site's port for TLS and QUIC to another port of the servers.
    pub(crate) fn lead(&self, site: usize, port: u16) -> Result<(), LabError> {
        Ok(self.topology.lead(site, port)?)
    }

    /// Gives the certificates of the lab.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.servers.authority
    }

    /// Gives the emulator of the lab's links.
    pub(crate) fn emulator(&self) -> &Emulator {
        &self.emulator
    }

    fn congestion_control(&self) -> String {
        let read = self.topology.read_settings(Place::Client, &["net.ipv4.tcp_congestion_control"]);
        read.ok().and_then(|settings| settings.into_iter().next()).map(|(_, name)| name).unwrap_or_default()
    }
}

/// Describes the access links of a scenario before anything happens to them.
fn specs(scenario: &Scenario, traces: &mut Traces) -> Result<Vec<[DirectionSpec; 2]>, MissingTrace> {
    let mut specs = Vec::new();
    for access in &scenario.access {
        let down = access.shapes.down.spec(Direction::Down, traces)?;
        specs.push([down, access.shapes.up.spec(Direction::Up, traces)?]);
    }
    Ok(specs)
}

/// Describes a way that only takes time.
fn delay(direction: Direction, delay: Duration) -> DirectionSpec {
    let mut spec = DirectionSpec::transparent(direction);
    spec.impairments.delay = delay;
    spec
}

/// Names a scenario as the command line does.
fn name(scenario: &Scenario) -> String {
    let variant = scenario.variant.iter().map(|variant| format!(":{variant}"));
    scenario.name.clone() + &variant.collect::<String>()
}

/// Variables that tell programs which authorities to trust: OpenSSL's, curl's, Python requests' and Node's.
const TRUST_VARIABLES: &[&str] = &["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"];

/// Variables that would send programs to a proxy outside the lab; also in capitals.
const PROXY_VARIABLES: &[&str] = &["http_proxy", "https_proxy", "all_proxy", "no_proxy"];
