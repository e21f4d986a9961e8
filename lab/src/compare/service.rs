//! The servers of a run: the origin behind, and before it the web server or Ropeway's gateway.

use std::{
    fmt::Write as _,
    fs, io,
    io::{BufRead as _, BufReader},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    lab::{Lab, LabError, Place, Site},
    peers::Peer,
};

/// The programs that serve, and where they are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// Folder of the adapters, with `origin.py` and `front.py`.
    pub(crate) adapters: PathBuf,
    /// Python of the installed peers.
    pub(crate) python: PathBuf,
    /// The program `ropeway`.
    pub(crate) ropeway: PathBuf,
}

/// The running servers; dropping it ends them.
#[derive(Debug)]
pub(crate) struct Servers {
    log: PathBuf,
    environment: Vec<(&'static str, String)>,
    _running: Vec<Service>,
}

impl Servers {
    /// Starts the origin, and at each site a web server or a gateway, and waits until they listen.
    pub(crate) fn start(programs: &Programs, lab: &dyn Lab, peer: &Peer) -> Result<Self, LabError> {
        let log = lab.folder().join("executed.jsonl");
        let sites = lab.sites();
        let mut origin = lab.command(Place::Backend, &programs.python)?;
        origin.arg(programs.adapters.join("origin.py")).arg("--log").arg(&log);
        origin.args(sites.iter().flat_map(|site| ["--bind".to_owned(), site.backend().to_string()]));
        let mut running = vec![Service::start("origin", origin)?];
        // Real chains have an intermediate authority; here the authority itself takes its place.
        let certificates = lab.certificates();
        let chain = lab.folder().join("chain.pem");
        let joined = read(&certificates.cert)? + &read(&certificates.ca)?;
        fs::write(&chain, joined).map_err(LabError::of)?;

        let mut environment = vec![("LAB_CA", certificates.ca.display().to_string()), ("LAB_ORIGIN", origin_of(lab))];
        if peer.through_gateway {
            let data = data_dir(lab, 0);
            environment.push(("LAB_GATEWAY_DATA", data.display().to_string()));
            environment.push(("LAB_ACCESS_POINTS", access_points(lab, &sites)));
        }
        for (number, site) in sites.iter().enumerate() {
            running.push(if peer.through_gateway {
                gateway(programs, lab, (number, site), &chain, &certificates.key)?
            } else {
                front(programs, lab, site, &chain, &certificates.key)?
            });
        }
        Ok(Self { log, environment, _running: running })
    }

    /// Gives a command the environment of a peer.
    pub(crate) fn introduce(&self, mut command: Command) -> Command {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Gives the ids of the executed requests, once for each execution.
    pub(crate) fn executed(&self) -> Result<Vec<String>, LabError> {
        let text = fs::read_to_string(&self.log).map_err(LabError::of)?;
        let id = |line: &str| Some(serde_json::from_str::<Value>(line).ok()?.get("id")?.as_str()?.to_owned());
        Ok(text.lines().filter_map(id).collect())
    }
}

/// Gives scheme, host and, where it is not the usual one, port of the URLs.
pub(crate) fn origin_of(lab: &dyn Lab) -> String {
    match lab.port() {
        443 => format!("https://{HOST}"),
        port => format!("https://{HOST}:{port}"),
    }
}

fn access_points(lab: &dyn Lab, sites: &[Site]) -> String {
    let mut text = format!("{HOST}:{}", lab.port());
    for (number, site) in sites.iter().enumerate() {
        for address in &site.addresses {
            let address = SocketAddr::new(*address, lab.port());
            write!(text, ",{number}={address}").expect("a string takes what is written");
        }
    }
    text
}

impl Site {
    fn backend(&self) -> SocketAddr {
        SocketAddr::new(self.backend, BACKEND_PORT)
    }
}

fn front(programs: &Programs, lab: &dyn Lab, site: &Site, chain: &Path, key: &Path) -> Result<Service, LabError> {
    let mut command = lab.command(Place::Server, &programs.python)?;
    command.arg(programs.adapters.join("front.py")).arg("--cert").arg(chain).arg("--key").arg(key);
    command.arg("--upstream").arg(format!("http://{}", site.backend()));
    for address in &site.addresses {
        // One socket each: by a socket of all addresses, hypercorn would answer QUIC from whichever comes first.
        command.arg("--bind").arg(SocketAddr::new(*address, lab.port()).to_string());
        if lab.port() == 443 {
            command.arg("--plain-bind").arg(SocketAddr::new(*address, 80).to_string());
        }
    }
    Service::start("front", command)
}

/// Starts a site's gateway. That of a further site has a port of its own, since a gateway listens on every address, and takes the same
/// tickets; of sessions each knows its own.
fn gateway(
    programs: &Programs,
    lab: &dyn Lab,
    (number, site): (usize, &Site),
    chain: &Path,
    key: &Path,
) -> Result<Service, LabError> {
    let data = data_dir(lab, number);
    let mut port = lab.port();
    if number > 0 {
        port += u16::try_from(number).map_err(LabError::of)?;
        lab.lead(number, port)?;
        fs::create_dir(&data).map_err(LabError::of)?;
        for key in SHARED_KEYS {
            fs::copy(data_dir(lab, 0).join(key), data.join(key)).map_err(LabError::of)?;
        }
    }
    let config = data.with_extension("toml");
    let listen = SocketAddr::new(IpAddr::from([0; 16]), port).to_string();
    let backend = site.backend();
    let text = format!(
        "[gateway]\nname = \"{HOST}\"\ntcp_listen = \"{listen}\"\nudp_listen = \"{listen}\"\ndata_dir = {data:?}\n\
         [tls]\ncert = {chain:?}\nkey = {key:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n[pipe]\nname = \"{number}\"\n\
         [[route]]\nhost = \"{HOST}\"\nupstream = \"http://{backend}\"\nupstream_honours_keys = true\n{}",
        units(lab)
    );
    fs::write(&config, text).map_err(LabError::of)?;
    let mut command = lab.command(Place::Server, &programs.ropeway)?;
    command.args(["--json", "up", "--config"]).arg(&config);
    Service::start("gateway", command)
}

/// Writes the sites as the units of an access list.
fn units(lab: &dyn Lab) -> String {
    let mut text = String::new();
    for (number, site) in lab.sites().iter().enumerate() {
        write!(text, "[[unit]]\nname = \"{number}\"\n").expect("a string takes what is written");
        for address in &site.addresses {
            let address = SocketAddr::new(*address, lab.port());
            let point = format!(
                "[[unit.access_point]]\naddress = \"{address}\"\npipe_name = \"{number}\"\n\
                 speaks = [\"quic\", \"tls\", \"ws\", \"h3\", \"pipe\"]\n"
            );
            text += &point;
        }
    }
    text
}

/// Names the data folder of a site's gateway.
fn data_dir(lab: &dyn Lab, site: usize) -> PathBuf {
    lab.folder().join(format!("gateway{site}"))
}

fn read(path: &Path) -> Result<String, LabError> {
    fs::read_to_string(path).map_err(|error| LabError(format!("cannot read {}: {error}", path.display())))
}

/// A program that serves; dropping it ends it.
#[derive(Debug)]
struct Service {
    process: Child,
}

impl Service {
    /// Starts it, and waits for its first line, which it writes when it listens.
    fn start(name: &str, mut command: Command) -> Result<Self, LabError> {
        let failed = |reason: String| LabError(format!("the {name} does not start: {reason}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (line, lines) = mpsc::channel();
        let output = process.stdout.take().expect("standard output is piped");
        thread::spawn(move || first_line(output, &line));
        let complaints = process.stderr.take().expect("standard error is piped");
        let complaints = thread::spawn(move || last_line(complaints));
        let mut service = Self { process };
        match lines.recv_timeout(START_MAX) {
            Ok(()) => Ok(service),
            Err(RecvTimeoutError::Timeout) => {
                Err(failed(format!("it does not listen after {} s", START_MAX.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let _ = service.process.wait();
                Err(failed(complaints.join().unwrap_or_default()))
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Tells of the first line, then reads on so that the program never waits for a reader.
fn first_line(output: ChildStdout, told: &mpsc::Sender<()>) {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    if output.read_line(&mut line).is_ok_and(|length| length > 0) {
        // The start may have been given up.
        let _ = told.send(());
    }
    let _ = io::copy(&mut output, &mut io::sink());
}

/// Reads a program's complaints to the end and gives the last.
fn last_line(complaints: impl io::Read) -> String {
    let lines = BufReader::new(complaints).lines().map_while(Result::ok).filter(|line| !line.trim().is_empty());
    lines.last().unwrap_or_else(|| "it ended".to_owned())
}

/// The name under which peers know the origin; also the gateway's name.
pub(crate) const HOST: &str = "api.test";

/// What makes a gateway take the tickets of another, and its access lists be believed like the other's: files of the data folder of
/// `ropeway up`.
const SHARED_KEYS: [&str; 2] = ["issuer.key", "list.key"];

/// Port of the origin behind the server.
const BACKEND_PORT: u16 = 8080;

/// Longest start of a server; Python and its packages take 1 s on an idle machine.
const START_MAX: Duration = Duration::from_secs(60);
