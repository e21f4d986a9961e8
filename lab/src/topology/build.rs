//! Making the namespaces: devices, addresses, routes and settings.

use std::{
    fmt::Write,
    fs, io,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    Place, Slot, Tool, TopologyError,
    plan::{
        BACKEND_CLIENT, BACKEND_INTERFACE, DENIER, HIJACKED_ORIGIN, HIJACKER, LOOPBACK_ANSWERER, LinkPlan, NAME_SERVER,
        Plan, SITE_INTERFACES, SitePlan, V4_BITS, V6_BITS,
    },
    slot::RESOLVER_FOLDER,
};
use crate::os::{namespace, tun::Tun};

/// The namespaces of a lab, joined and addressed; dropping it removes them.
#[derive(Debug)]
pub(crate) struct Topology {
    /// Who has which address.
    pub(crate) plan: Plan,
    /// Which lab this is; it comes last, since dropping it removes the namespaces.
    pub(crate) slot: Slot,
}

/// The two ends of a link that has no wire but what the emulator carries.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// Name of the access link, or of the site's interface.
    pub(crate) name: String,
    /// The end nearer to the client.
    pub(crate) near: Tun,
    /// The end nearer to the servers.
    pub(crate) far: Tun,
}

/// What the emulator has to carry packets between.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    /// The access links, between client and provider.
    pub(crate) access: Vec<Pipe>,
    /// The ways to sites that are further off, between provider and site.
    pub(crate) sites: Vec<(Pipe, Duration)>,
}

/// Writes the file by which programs in a namespace find the name server.
fn write_resolver(folder: &Path) -> io::Result<()> {
    let mut tries = RESOLVER_TRIES;
    loop {
        tries -= 1;
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(folder.join("resolv.conf"), format!("nameserver {NAME_SERVER}\n")));
        match written {
            // A lab that ends removes the folder above when nothing is left in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 0 => {}
            written => return written,
        }
    }
}

/// How often a resolver's folder is made anew where labs that end remove the one above it. 8; our choice: as many may end at once.
const RESOLVER_TRIES: u32 = 8;

impl Topology {
    /// Makes the namespaces of a lab.
    pub(crate) fn build(slot: Slot, plan: Plan) -> Result<(Self, Pipes), TopologyError> {
        // From here on an error drops it, which removes what there is.
        let topology = Self { plan, slot };
        topology.make_namespaces()?;
        let pipes = topology.make_pipes()?;
        for (place, commands) in [
            (Place::Isp, isp(&topology.plan, &topology.namespace(Place::Server))),
            (Place::Server, server(&topology.plan, &topology.namespace(Place::Backend))),
            (Place::Backend, backend(&topology.plan)),
            (Place::Client, client(&topology.plan)),
        ] {
            topology.ip(place, &commands)?;
        }
        topology.tool(Tool::Nft, Place::Isp, &["-f", "-"], &nat(&topology.plan))?;
        Ok((topology, pipes))
    }

    /// Gives the name of the namespace at `place`.
    pub(crate) fn namespace(&self, place: Place) -> String {
        self.slot.namespace(place)
    }

    /// Runs commands of `ip`, one a line, at `place`, those marked as of IPv6 last; the first that fails ends it.
    pub(crate) fn ip(&self, place: Place, commands: &str) -> Result<(), TopologyError> {
        let namespace = self.namespace(place);
        let (v6, other): (Vec<&str>, Vec<&str>) = commands.lines().partition(|line| line.starts_with(ONLY_V6));
        Tool::Ip.run(None, &["-netns", &namespace, "-batch", "-"], &other.join("\n"))?;
        if !v6.is_empty() {
            let v6: Vec<&str> = v6.into_iter().filter_map(|line| line.strip_prefix(ONLY_V6)).collect();
            Tool::Ip.run(None, &["-6", "-netns", &namespace, "-batch", "-"], &v6.join("\n"))?;
        }
        Ok(())
    }

    /// Runs a tool at `place` and gives what it printed.
    pub(crate) fn tool(
        &self,
        tool: Tool,
        place: Place,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, TopologyError> {
        Ok(tool.run(Some(&self.namespace(place)), arguments, input)?)
    }

    /// Leads what comes to a site's port for TLS and QUIC to another port: a program that listens on every address of the servers
    /// takes but its own site's part of them.
    pub(crate) fn lead(&self, site: usize, port: u16) -> Result<(), TopologyError> {
        let rules = leads(&self.plan.sites[site], site, port);
        self.tool(Tool::Nft, Place::Server, &["-f", "-"], &rules).map(drop)
    }

    /// Writes settings at `place`, each named as in `sysctl`.
    pub(crate) fn settings<T: AsRef<str> + Sync>(
        &self,
        place: Place,
        settings: &[(&'static str, T)],
    ) -> Result<(), TopologyError> {
        self.each_setting(place, settings, |path, (_, value)| fs::write(path, value.as_ref())).map(drop)
    }

    /// Reads settings at `place`.
    pub(crate) fn read_settings(
        &self,
        place: Place,
        keys: &[&'static str],
    ) -> Result<Vec<(&'static str, String)>, TopologyError> {
        let keys: Vec<(&'static str, ())> = keys.iter().map(|key| (*key, ())).collect();
        self.each_setting(place, &keys, |path, (key, ())| Ok((*key, fs::read_to_string(path)?.trim().to_owned())))
    }

    /// Does something to the files of settings, which are those of the namespace of whoever opens them.
    fn each_setting<T: Sync, R: Send>(
        &self,
        place: Place,
        settings: &[(&'static str, T)],
        work: impl Fn(PathBuf, &(&'static str, T)) -> io::Result<R> + Sync,
    ) -> Result<Vec<R>, TopologyError> {
        let namespace = self.namespace(place);
        let all = || -> Result<Vec<R>, (&'static str, io::Error)> {
            let each = |setting: &(&'static str, T)| {
                let path = Path::new("/proc/sys").join(setting.0.replace('.', "/"));
                work(path, setting).map_err(|source| (setting.0, source))
            };
            settings.iter().map(each).collect()
        };
        let done = namespace::inside(&namespace, all).map_err(TopologyError::folder(&namespace::path(&namespace)))?;
        done.map_err(|(key, source)| TopologyError::Setting { key, namespace, source })
    }

    fn make_namespaces(&self) -> Result<(), TopologyError> {
        let mut commands = String::new();
        for place in Place::ALL {
            let name = self.namespace(place);
            line(&mut commands, format_args!("netns add {name}"));
            let folder = Path::new(RESOLVER_FOLDER).join(&name);
            write_resolver(&folder).map_err(TopologyError::folder(&folder))?;
        }
        Tool::Ip.run(None, &["-batch", "-"], &commands)?;
        for place in Place::ALL {
            self.settings(place, SETTINGS)?;
            // The restricted algorithms are only for the host to set; what runs then is in the report.
            let _ = self.settings(place, CONGESTION_CONTROL);
        }
        self.settings(Place::Isp, ISP_SETTINGS)
    }

    fn make_pipes(&self) -> Result<Pipes, TopologyError> {
        let mut pipes = Pipes::default();
        for link in &self.plan.links {
            let near = self.tun(Place::Client, &link.interface)?;
            let far = self.tun(Place::Isp, &link.interface)?;
            pipes.access.push(Pipe { name: link.name.clone(), near, far });
        }
        for site in self.plan.sites.iter().filter(|site| site.is_further_off()) {
            let near = self.tun(Place::Isp, &site.interface)?;
            let far = self.tun(Place::Server, &site.interface)?;
            pipes.sites.push((Pipe { name: site.interface.clone(), near, far }, site.extra_rtt));
        }
        Ok(pipes)
    }

    fn tun(&self, place: Place, name: &str) -> Result<Tun, TopologyError> {
        let created = namespace::inside(&self.namespace(place), || Tun::create(name));
        created.flatten().map_err(|source| TopologyError::Device { name: name.to_owned(), source })
    }
}

impl SitePlan {
    /// Says whether the site's delay is emulated; others are joined by a plain virtual cable.
    fn is_further_off(&self) -> bool {
        !self.extra_rtt.is_zero()
    }
}

/// Addresses and routes of the client.
fn client(plan: &Plan) -> String {
    let mut commands = String::from("link set lo up\n");
    for link in &plan.links {
        line(&mut commands, format_args!("link set {} txqueuelen {TX_QUEUE_PACKETS} up", link.interface));
        commands.push_str(&client_addresses(link, 0));
        commands.push_str(&client_routes(plan, link));
    }
    for link in &plan.links {
        let (table, (v4, v6)) = (link.table, (link.v4_network, link.v6_network));
        line(&mut commands, format_args!("rule add from {} table {table}", network_v4(v4)));
        line(&mut commands, format_args!("{ONLY_V6}rule add from {} table {table}", network_v6(v6)));
    }
    commands
}

/// Gives the client the addresses of a link after so many changes.
pub(crate) fn client_addresses(link: &LinkPlan, changes: u32) -> String {
    let (v4, v6) = link.client(changes);
    addresses(&link.interface, v4, v6)
}

/// Routes of the client over one link; they vanish when its interface goes down or loses its address.
///
/// The links' order is their rank among default routes, and what is sent from a link's address leaves by that link.
pub(crate) fn client_routes(plan: &Plan, link: &LinkPlan) -> String {
    let rank = plan.links.iter().position(|other| other == link).unwrap_or(plan.links.len());
    let metric = FIRST_METRIC + rank;
    let (interface, table, (v4, v6)) = (&link.interface, link.table, link.provider());
    format!(
        "route replace default via {v4} dev {interface} metric {metric}\n\
         route replace ::/0 via {v6} dev {interface} metric {metric}\n\
         route replace default via {v4} dev {interface} table {table}\n\
         route replace ::/0 via {v6} dev {interface} table {table}\n"
    )
}

/// Addresses and routes of the provider.
fn isp(plan: &Plan, server: &str) -> String {
    let mut commands = String::from("link set lo up\n");
    for address in [HIJACKER, DENIER, LOOPBACK_ANSWERER, HIJACKED_ORIGIN] {
        line(&mut commands, format_args!("address add {address}/32 dev lo"));
    }
    for link in &plan.links {
        let (v4, v6) = link.provider();
        line(&mut commands, format_args!("link set {} txqueuelen {TX_QUEUE_PACKETS} up", link.interface));
        commands.push_str(&addresses(&link.interface, v4, v6));
    }
    for (index, site) in plan.sites.iter().enumerate() {
        let interface = &site.interface;
        if !site.is_further_off() {
            line(&mut commands, format_args!("link add {interface} type veth peer name {interface} netns {server}"));
            line(&mut commands, format_args!("link set {interface} {LINK_LOCAL}"));
        }
        line(&mut commands, format_args!("link set {interface} txqueuelen {TX_QUEUE_PACKETS} up"));
        line(&mut commands, format_args!("address add {} peer {} dev {interface}", site.nat, site.router.0));
        line(&mut commands, format_args!("address add {}/{V6_BITS} dev {interface} nodad", site.gateway_v6));
        let name_server = (index == 0).then(|| format!("{NAME_SERVER}/32"));
        for network in std::iter::once(network_v4(site.v4_network)).chain(name_server) {
            line(&mut commands, format_args!("route add {network} via {} dev {interface}", site.router.0));
        }
        let network = network_v6(site.v6_network);
        line(&mut commands, format_args!("route add {network} via {} dev {interface}", site.router.1));
    }
    commands
}

/// Addresses and routes of the servers.
fn server(plan: &Plan, backend: &str) -> String {
    let mut commands = String::from("link set lo up\n");
    for (index, site) in plan.sites.iter().enumerate() {
        let interface = &site.interface;
        if !site.is_further_off() {
            line(&mut commands, format_args!("link set {interface} {LINK_LOCAL}"));
        }
        line(&mut commands, format_args!("link set {interface} txqueuelen {TX_QUEUE_PACKETS} up"));
        line(&mut commands, format_args!("address add {} peer {} dev {interface}", site.router.0, site.nat));
        line(&mut commands, format_args!("address add {}/{V6_BITS} dev {interface} nodad", site.router.1));
        for address in &site.v4 {
            line(&mut commands, format_args!("address add {address}/32 dev lo"));
        }
        for address in &site.v6 {
            line(&mut commands, format_args!("address add {address}/128 dev lo nodad"));
        }
        let mut tables = vec![format!("table {}", site.table)];
        // What belongs to no site, such as the name servers, answers by way of the first.
        tables.extend((index == 0).then(String::new));
        for table in tables {
            line(&mut commands, format_args!("route add default via {} dev {interface} {table}", site.nat));
            line(&mut commands, format_args!("route add ::/0 via {} dev {interface} {table}", site.gateway_v6));
        }
        line(&mut commands, format_args!("rule add from {} table {}", network_v4(site.v4_network), site.table));
        line(
            &mut commands,
            format_args!("{ONLY_V6}rule add from {} table {}", network_v6(site.v6_network), site.table),
        );
    }
    line(&mut commands, format_args!("address add {NAME_SERVER}/32 dev lo"));
    line(
        &mut commands,
        format_args!("link add {BACKEND_INTERFACE} type veth peer name {BACKEND_INTERFACE} netns {backend}"),
    );
    line(&mut commands, format_args!("link set {BACKEND_INTERFACE} up"));
    line(&mut commands, format_args!("address add {BACKEND_CLIENT}/{V4_BITS} dev {BACKEND_INTERFACE}"));
    commands
}

/// Addresses of the backend, one for each site.
fn backend(plan: &Plan) -> String {
    let mut commands = format!("link set lo up\nlink set {BACKEND_INTERFACE} up\n");
    for site in &plan.sites {
        line(&mut commands, format_args!("address add {}/{V4_BITS} dev {BACKEND_INTERFACE}", site.backend));
    }
    line(&mut commands, format_args!("route add default via {BACKEND_CLIENT}"));
    commands
}

/// The provider's NAT of IPv4: each connection of the client gets a port at random of the provider's address, and what
/// belongs to no connection that the NAT remembers disappears.
fn nat(plan: &Plan) -> String {
    let clients: Vec<String> = plan.links.iter().map(|link| network_v4(link.v4_network)).collect();
    let access: Vec<String> = plan.links.iter().map(|link| format!("\"{}\"", link.interface)).collect();
    let (clients, access) = (clients.join(", "), access.join(", "));
    format!(
        "table inet nat {{\n\
         \tchain postrouting {{\n\t\ttype nat hook postrouting priority srcnat\n\
         \t\toifname != {{ {access} }} ip saddr {{ {clients} }} masquerade random\n\t}}\n\
         \tchain forwarded {{\n\t\ttype filter hook forward priority filter\n\t\tct state invalid drop\n\t}}\n\
         \tchain received {{\n\t\ttype filter hook input priority filter\n\
         \t\tiifname \"{SITE_INTERFACES}\" meta l4proto {{ tcp, udp }} ct state {{ invalid, new }} drop\n\t}}\n}}\n"
    )
}

/// Rules that lead a site's entry to another port, each address to itself, so that answers take the site's way. Faults at the servers
/// come first.
fn leads(site: &SitePlan, number: usize, port: u16) -> String {
    let mut text = format!(
        "table inet site{number} {{\n\tchain redirected {{\n\t\ttype nat hook prerouting priority dstnat + 10\n"
    );
    let to_entry = format!("meta l4proto {{ tcp, udp }} th dport {ENTRY_PORT}");
    for address in &site.v4 {
        line(&mut text, format_args!("\t\tip daddr {address} {to_entry} dnat ip to {address}:{port}"));
    }
    for address in &site.v6 {
        line(&mut text, format_args!("\t\tip6 daddr {address} {to_entry} dnat ip6 to [{address}]:{port}"));
    }
    text + "\t}\n}\n"
}

fn addresses(interface: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> String {
    format!(
        "address replace {v4}/{V4_BITS} dev {interface}\n\
         address replace {v6}/{V6_BITS} dev {interface} nodad\n"
    )
}

fn network_v4([a, b, c]: [u8; 3]) -> String {
    format!("{a}.{b}.{c}.0/{V4_BITS}")
}

fn network_v6([a, b, c, d]: [u16; 4]) -> String {
    format!("{}/{V6_BITS}", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
}

fn line(commands: &mut String, command: std::fmt::Arguments<'_>) {
    writeln!(commands, "{command}").expect("a string takes what is written");
}

/// Marks a command that must be told that it is about IPv6; most see it by an address.
const ONLY_V6: &str = "-6 ";

/// Settings of every namespace: no packets of their own on the emulated links, nothing learnt from one run for the next.
const SETTINGS: &[(&str, &str)] = &[
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
];

/// The congestion control of most hosts, wherever a namespace may choose it.
const CONGESTION_CONTROL: &[(&str, &str)] = &[("net.ipv4.tcp_congestion_control", "cubic")];

/// Settings of the provider: a router that counts the packets of each connection, for rules that look at their number,
/// and takes up no connection in the middle, but does not mind what the client's and the servers' windows are.
const ISP_SETTINGS: &[(&str, &str)] = &[
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.netfilter.nf_conntrack_acct", "1"),
    ("net.netfilter.nf_conntrack_tcp_be_liberal", "1"),
    ("net.netfilter.nf_conntrack_tcp_loose", "0"),
];

/// Gives an interface a link-local address, without which neighbours are not asked on behalf of others' packets.
const LINK_LOCAL: &str = "addrgenmode eui64";

/// Port at which clients meet a site.
const ENTRY_PORT: u16 = 443;

/// Packets that the kernel holds for the emulator while it is busy; the queue of the link itself is in the model.
const TX_QUEUE_PACKETS: u32 = 2000;

/// Metric of the default route over the first access link; later ones follow.
const FIRST_METRIC: usize = 100;
