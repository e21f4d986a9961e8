//! Running the network tools: `ip`, `nft` and `conntrack`, with their input on standard input.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::os::child::dies_with_us;

/// A network tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `conntrack`, which changes the table of connections.
    Conntrack,
    /// `dnsmasq`, a name server.
    Dnsmasq,
    /// `ip`, which makes devices, addresses and routes.
    Ip,
    /// `nft`, which makes packet rules.
    Nft,
}

/// Why a tool failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// It ran and refused.
    #[error("{} {arguments} failed: {message}", tool.name())]
    Failed {
        /// The tool.
        tool: Tool,
        /// Its arguments.
        arguments: String,
        /// What it said.
        message: String,
    },
    /// It is not installed.
    #[error("no {}; install it: apt-get install {}", tool.name(), tool.package())]
    Missing {
        /// The tool.
        tool: Tool,
    },
    /// It cannot be started.
    #[error("cannot start {}: {source}", tool.name())]
    Start {
        /// The tool.
        tool: Tool,
        /// What the system says.
        source: io::Error,
    },
}

impl Tool {
    /// Every tool.
    pub const ALL: [Self; 4] = [Self::Conntrack, Self::Dnsmasq, Self::Ip, Self::Nft];

    /// Gives the name of the program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Conntrack => "conntrack",
            Self::Dnsmasq => "dnsmasq",
            Self::Ip => "ip",
            Self::Nft => "nft",
        }
    }

    /// Gives the name of the Debian package that has it.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::Conntrack => "conntrack",
            Self::Dnsmasq => "dnsmasq-base",
            Self::Ip => "iproute2",
            Self::Nft => "nftables",
        }
    }

    /// Finds the program in `PATH`, or where Debian puts it for root alone.
    ///
    /// # Errors
    ///
    /// When it is not installed.
    pub fn find(self) -> Result<PathBuf, ToolError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(ROOT_FOLDERS.iter().map(PathBuf::from));
        let found = folders.map(|folder| folder.join(self.name())).find(|file| file.is_file());
        found.ok_or(ToolError::Missing { tool: self })
    }

    /// Runs the tool, in a namespace if one is named, and gives what it printed.
    ///
    /// # Errors
    ///
    /// When it is missing, cannot be started or ends with an error.
    pub(crate) fn run(self, namespace: Option<&str>, arguments: &[&str], input: &str) -> Result<String, ToolError> {
        let mut command = self.command(namespace)?;
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |source| ToolError::Start { tool: self, source };
        let mut child = dies_with_us(&mut command).spawn().map_err(failed)?;
        let mut stdin = child.stdin.take().expect("it was asked to be a pipe");
        // A tool that refuses the first line may not read the rest; its message says why.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let message = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        Err(ToolError::Failed { tool: self, arguments: arguments.join(" "), message })
    }

    /// Prepares to start the tool, in a namespace if one is named.
    pub(crate) fn command(self, namespace: Option<&str>) -> Result<Command, ToolError> {
        let program = self.find()?;
        Ok(match namespace {
            Some(namespace) => inside(namespace, &program)?,
            None => Command::new(program),
        })
    }
}

/// Prepares to start a program in a namespace, with the resolver of that namespace.
pub(crate) fn inside(namespace: &str, program: &Path) -> Result<Command, ToolError> {
    let mut command = Command::new(Tool::Ip.find()?);
    command.args(["netns", "exec", namespace]).arg(program);
    Ok(command)
}

/// Where Debian puts programs for root; not in everybody's `PATH`.
const ROOT_FOLDERS: &[&str] = &["/usr/sbin", "/sbin"];
