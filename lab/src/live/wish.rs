//! What `set` asks for, read by the parser of scenarios, so that both have the same keys, ranges and complaints.

use ropeway_core::sim::{
    Scenario,
    link::Outage,
    scenario::{EventKind, Fault, ShapeChange},
};

/// A change of a running network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wish {
    /// Of which access link, by its place in the scenario; of all where none is named.
    pub(crate) link: Option<usize>,
    /// What.
    pub(crate) kind: WishKind,
}

/// What is to change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WishKind {
    /// The client gets another address.
    Address,
    /// A fault more.
    Fault(Box<Fault>),
    /// No fault any more, neither of the scenario nor from outside.
    Faultless,
    /// The interface goes, or comes.
    Interface {
        /// Whether it comes.
        is_up: bool,
    },
    /// The NAT forgets its mappings.
    NatRebind,
    /// An outage begins, or ends.
    Outage(Option<Outage>),
    /// The link becomes another.
    Shape(Box<ShapeChange>),
}

impl Wish {
    /// Reads `[LINK.][down.|up.]KEY=VALUE`, as for a lab of this scenario.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words.
    pub(crate) fn parse(text: &str, scenario: &Scenario) -> Result<Self, String> {
        let (path, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
        let (path, value) = (path.trim(), value.trim());
        let mut keys: Vec<&str> = path.split('.').collect();
        let link = scenario.access.iter().position(|link| link.name == keys[0]);
        if link.is_some() {
            keys.remove(0);
        }
        let of = |kind| Ok(Self { link, kind });
        match (&keys[..], value) {
            (["outage"], "off") => return of(WishKind::Outage(None)),
            (["interface"], "up") => return of(WishKind::Interface { is_up: true }),
            (["faults"], "off") => return of(WishKind::Faultless),
            _ => {}
        }
        let value = quoted(value);
        let line = match &keys[..] {
            ["fault"] => format!("fault = [{value}]"),
            [key] => format!("event = [{{ {}{key} = {value} }}]", named(link, scenario)),
            [way @ ("down" | "up"), key] => {
                format!("event = [{{ {}{way} = {{ {key} = {value} }} }}]", named(link, scenario))
            }
            _ => return Err(format!("`{path}` is not [LINK.][down.|up.]KEY; the links are {}", links(scenario))),
        };
        let text = format!("{line}\n{}", skeleton(scenario));
        let parsed = Scenario::parse(SOURCE, &text, None).map_err(|error| without_place(&error.to_string()))?;
        let kind = match (parsed.events.into_iter().next(), parsed.faults.into_iter().next()) {
            (Some(event), _) => match event.kind {
                EventKind::Address => WishKind::Address,
                EventKind::Interface => WishKind::Interface { is_up: false },
                EventKind::NatRebind => WishKind::NatRebind,
                EventKind::Outage(outage) => WishKind::Outage(Some(outage)),
                EventKind::Shape(change) => WishKind::Shape(change),
            },
            (None, Some(fault)) => WishKind::Fault(Box::new(fault)),
            (None, None) => return Err(format!("`{text}` changes nothing")),
        };
        of(kind)
    }
}

/// Puts a word into quotes, as TOML wants it; numbers and tables stay.
fn quoted(value: &str) -> String {
    let is_word = value.starts_with(|first: char| first.is_ascii_alphabetic());
    if is_word { format!("\"{value}\"") } else { value.to_owned() }
}

/// Names a link as an event does.
fn named(link: Option<usize>, scenario: &Scenario) -> String {
    link.map(|link| format!("link = \"{}\", ", scenario.access[link].name)).unwrap_or_default()
}

/// A scenario with the links and sites of another, for a change to be written above.
fn skeleton(scenario: &Scenario) -> String {
    let mut text = String::from("summary = \"-\"\nbasis = \"-\"\nsource = \"-\"\n");
    for link in &scenario.access {
        text.push_str(&format!("[access.{}]\nrtt_ms = 0\n", link.name));
    }
    for site in &scenario.sites {
        text.push_str(&format!("[[site]]\nname = \"{}\"\nv4 = {}\nv6 = {}\n", site.name, site.v4, site.v6));
    }
    text
}

fn links(scenario: &Scenario) -> String {
    scenario.access.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Takes off the file and line, which nobody wrote.
fn without_place(message: &str) -> String {
    let rest = message.strip_prefix(SOURCE).and_then(|rest| rest.split_once(": "));
    rest.map_or(message, |(_, rest)| rest).to_owned()
}

/// Name of the file that a change is read as.
const SOURCE: &str = "set";

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let text =
            "summary = \"-\"\nbasis = \"-\"\nsource = \"-\"\n[access.cell]\nrtt_ms = 60\n[access.wifi]\nrtt_ms = 20\n";
        Scenario::parse("sample", text, None).expect("a scenario")
    }

    fn parse(text: &str) -> Result<Wish, String> {
        Wish::parse(text, &scenario())
    }

    #[test]
    fn a_change_names_link_and_direction_or_leaves_them_out() {
        assert_eq!(
            parse("outage=hold").expect("good"),
            Wish { link: None, kind: WishKind::Outage(Some(Outage::Hold)) }
        );
        assert_eq!(parse("wifi.outage=off").expect("good").link, Some(1));
        assert_eq!(parse("wifi.interface=down").expect("good").kind, WishKind::Interface { is_up: false });
        let wish = parse("cell.down.loss=0.05").expect("good");
        let WishKind::Shape(change) = wish.kind else { panic!("{wish:?}") };
        let mut shapes = scenario().access[0].shapes.clone();
        change.apply(&mut shapes);
        assert_eq!((shapes.down.impairments.loss, shapes.up.impairments.loss), (0.05, 0.0));
    }

    #[test]
    fn a_fault_is_written_as_in_a_scenario() {
        let wish = parse(r#"fault={kind="udp", how="block"}"#).expect("good");
        assert!(matches!(wish.kind, WishKind::Fault(_)), "{wish:?}");
        assert_eq!(parse("faults=off").expect("good").kind, WishKind::Faultless);
    }

    #[test]
    fn what_is_wrong_is_said_as_for_a_scenario() {
        let error = parse("cell.los=0.05").expect_err("misspelt");
        assert!(error.starts_with("unknown key `los`") && error.contains("did you mean `loss`?"), "{error}");
        assert!(parse("loss=3").expect_err("more than all").contains("loss"));
        assert!(parse("dsl.down.loss=0.1").expect_err("no such link").contains("the links are cell, wifi"));
        assert!(parse("loss").expect_err("no value").contains("not KEY=VALUE"));
    }
}
