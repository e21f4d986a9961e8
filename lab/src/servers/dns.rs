//! Name servers: one that tells the truth, and those that answer in its place when names are hijacked.

use std::{
    fs, io,
    net::Ipv4Addr,
    path::Path,
    process::{Child, Stdio},
};

use crate::{
    os::child::spawn_for_lab,
    topology::{
        Tool, ToolError,
        plan::{DENIER, HIJACKED_ORIGIN, HIJACKER, LOOPBACK_ANSWERER, NAME_SERVER, ORIGIN_NAME, Plan},
    },
};

/// A name server; dropping it ends it.
#[derive(Debug)]
pub(crate) struct NameServer {
    process: Child,
}

/// How a name server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answers {
    /// With the address of the hijacker's own site, whatever it is asked.
    Hijacked,
    /// With 127.0.0.2, whatever it is asked.
    Loopback,
    /// That there is no such name.
    NoSuchName,
    /// With the addresses of the sites.
    True,
}

impl NameServer {
    /// Starts a name server in a namespace; its files are in `folder`.
    pub(crate) fn start(
        answers: Answers,
        plan: &Plan,
        seed: u64,
        namespace: &str,
        folder: &Path,
    ) -> Result<Self, ToolError> {
        let failed = |source: io::Error| ToolError::Start { tool: Tool::Dnsmasq, source };
        let mut command = Tool::Dnsmasq.command(Some(namespace))?;
        command.args(COMMON).arg(format!("--listen-address={}", answers.address()));
        match answers {
            Answers::Hijacked => command.arg(format!("--address=/#/{HIJACKED_ORIGIN}")),
            Answers::Loopback => command.arg("--address=/#/127.0.0.2"),
            Answers::NoSuchName => command.arg("--address=/#/"),
            Answers::True => {
                let file = folder.join("hosts");
                fs::write(&file, hosts(plan, seed)).map_err(failed)?;
                // What it does not know of these names, nobody does.
                command.arg(format!("--addn-hosts={}", file.display())).arg("--local=/test/")
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { process: spawn_for_lab(command).map_err(failed)? })
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        // It may have ended, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Answers {
    /// Gives the address of the name server that answers so.
    pub(crate) fn address(self) -> Ipv4Addr {
        match self {
            Self::Hijacked => HIJACKER,
            Self::Loopback => LOOPBACK_ANSWERER,
            Self::NoSuchName => DENIER,
            Self::True => NAME_SERVER,
        }
    }
}

/// Writes the names and addresses of a lab in the form of `/etc/hosts`: the origin at every site, and each site by name.
///
/// Name servers give the addresses of a name in turn, so which is the first to be first is for the seed to say.
fn hosts(plan: &Plan, seed: u64) -> String {
    let lines = plan.sites.iter().flat_map(|site| {
        let names = format!("{ORIGIN_NAME} www.{ORIGIN_NAME} gateway.test {}.test", site.name);
        site.addresses().map(move |address| format!("{address} {names}\n"))
    });
    let mut lines: Vec<String> = lines.collect();
    let first = seed.checked_rem(lines.len() as u64).and_then(|first| usize::try_from(first).ok());
    lines.rotate_left(first.unwrap_or_default());
    lines.concat()
}

/// Arguments of every name server: in the foreground, no file or server but what the lab names, names for a minute.
const COMMON: &[&str] = &[
    "--keep-in-foreground",
    "--conf-file=/dev/null",
    "--pid-file=",
    "--user=root",
    "--bind-interfaces",
    "--no-resolv",
    "--no-hosts",
    "--no-poll",
    "--local-ttl=60",
    "--neg-ttl=60",
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::topology::plan::SitePlan;

    #[test]
    fn the_origin_is_at_every_site_and_each_site_has_a_name() {
        let sites = vec![
            SitePlan::new("a", 0, (1, 1), Duration::ZERO),
            SitePlan::new("b", 1, (1, 0), Duration::from_millis(8)),
        ];
        let plan = Plan { links: Vec::new(), sites };
        assert!(hosts(&plan, 4).starts_with("2001:db8:18::10 api.test"));
        assert_eq!(
            hosts(&plan, 0),
            "198.18.0.10 api.test www.api.test gateway.test a.test\n\
             2001:db8:18::10 api.test www.api.test gateway.test a.test\n\
             198.19.0.10 api.test www.api.test gateway.test b.test\n"
        );
    }
}
