//! Packet rules as text for `nft -f`: a table of its own for each fault, so that faults come and go one by one.

use std::{
    fmt::{self, Write},
    net::IpAddr,
};

/// A table of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Sets and counters that the rules use, each with its braces.
    pub(crate) sets: Vec<String>,
    /// Rules by the place in a packet's way where they stand.
    pub(crate) chains: Vec<(Hook, Vec<String>)>,
}

/// A place in a packet's way through a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Packets that pass through, after routing.
    Forward,
    /// Packets for the namespace itself.
    Input,
    /// Packets that the namespace's own programs send.
    Output,
    /// New connections, before routing: where another destination is put in.
    Redirect,
}

impl Table {
    /// Makes a table of rules at one hook.
    pub(crate) fn of(hook: Hook, rules: impl IntoIterator<Item = String>) -> Self {
        Self { sets: Vec::new(), chains: vec![(hook, rules.into_iter().collect())] }
    }

    /// Adds what another table has.
    pub(crate) fn merge(&mut self, other: Self) {
        self.sets.extend(other.sets);
        for (hook, rules) in other.chains {
            match self.chains.iter_mut().find(|(own, _)| *own == hook) {
                Some((_, own)) => own.extend(rules),
                None => self.chains.push((hook, rules)),
            }
        }
    }

    /// Gives the text that makes the table, in place of one of the same name.
    pub(crate) fn text(&self, name: &str) -> String {
        // Adding before deleting makes deleting possible whether or not the table is there.
        let mut text = format!("table inet {name}\n{}table inet {name} {{\n", removal(name));
        let mut line = |line: fmt::Arguments<'_>| writeln!(text, "{line}").expect("a string takes what is written");
        for set in &self.sets {
            line(format_args!("\t{set}"));
        }
        for (hook, rules) in &self.chains {
            line(format_args!("\tchain {} {{\n\t\t{}", hook.name(), hook.place()));
            for rule in rules {
                line(format_args!("\t\t{rule}"));
            }
            line(format_args!("\t}}"));
        }
        line(format_args!("}}"));
        text
    }
}

/// Gives the text that removes a table.
pub(crate) fn removal(name: &str) -> String {
    format!("delete table inet {name}\n")
}

impl Hook {
    fn name(self) -> &'static str {
        match self {
            Self::Forward => "forwarded",
            Self::Input => "received",
            Self::Output => "sent",
            Self::Redirect => "redirected",
        }
    }

    fn place(self) -> &'static str {
        match self {
            // Before the rules of the provider's own NAT.
            Self::Forward => "type filter hook forward priority filter - 10",
            Self::Input => "type filter hook input priority filter - 10",
            Self::Output => "type filter hook output priority filter - 10",
            Self::Redirect => "type nat hook prerouting priority dstnat",
        }
    }
}

/// Names packets by where they go to.
pub(crate) fn to(address: IpAddr) -> String {
    format!("{} daddr {address}", family(address))
}

/// Names packets by where they come from.
pub(crate) fn from(address: IpAddr) -> String {
    format!("{} saddr {address}", family(address))
}

/// Names a share of packets at random; 1 or more names all.
pub(crate) fn at_random(share: f64) -> String {
    let of_all = (share * RANDOM_STEPS as f64).round();
    if of_all >= RANDOM_STEPS as f64 { String::new() } else { format!("numgen random mod {RANDOM_STEPS} < {of_all} ") }
}

/// Names packets by the interfaces they came in by.
pub(crate) fn came_by(interfaces: &[&str]) -> String {
    format!("iifname {}", quoted(interfaces))
}

/// Names packets by the interfaces they leave by.
pub(crate) fn leaves_by(interfaces: &[&str]) -> String {
    format!("oifname {}", quoted(interfaces))
}

fn quoted(interfaces: &[&str]) -> String {
    let quoted: Vec<String> = interfaces.iter().map(|interface| format!("\"{interface}\"")).collect();
    format!("{{ {} }}", quoted.join(", "))
}

/// Gives the word for an address's protocol.
pub(crate) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip" } else { "ip6" }
}

/// Steps in which a share is counted.
const RANDOM_STEPS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_the_one_of_its_name() {
        let address = IpAddr::from([198, 18, 0, 10]);
        let table = Table::of(Hook::Forward, [format!("{} {}drop", to(address), at_random(0.4))]);
        assert_eq!(
            table.text("fault0"),
            "table inet fault0\ndelete table inet fault0\ntable inet fault0 {\n\tchain forwarded {\n\
             \t\ttype filter hook forward priority filter - 10\n\
             \t\tip daddr 198.18.0.10 numgen random mod 10000 < 4000 drop\n\t}\n}\n"
        );
    }

    #[test]
    fn a_share_of_all_needs_no_chance() {
        assert_eq!(at_random(1.0), "");
        assert_eq!(came_by(&["cell0", "wifi0"]), "iifname { \"cell0\", \"wifi0\" }");
        assert_eq!(from("2001:db8::1".parse().expect("an address")), "ip6 saddr 2001:db8::1");
    }
}
