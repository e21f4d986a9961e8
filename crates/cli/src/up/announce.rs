//! What `up` says when it is up: where it listens, and the commands to try next.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use ropeway_core::CarrierKind;
use ropeway_gateway::config::{Config, RouteConfig};
use serde_json::{Value, json};

use crate::data_dir::{DEVELOPMENT_USER, DataDir};
use ropeway_gateway::Addresses;

/// All that is to be said.
#[derive(Debug)]
pub(super) struct Announcement<'a> {
    /// What is running.
    pub(super) config: &'a Config,
    /// Where it listens.
    pub(super) addresses: &'a Addresses,
    /// Its data folder.
    pub(super) data: &'a DataDir,
    /// How this program was called.
    pub(super) program: &'a str,
}

impl Announcement<'_> {
    /// Says it for people.
    pub(super) fn text(&self) -> String {
        let Addresses { tcp, admin, .. } = self.addresses;
        let places = self
            .addresses
            .access_points()
            .into_iter()
            .map(|(address, carriers)| format!("{address} by {}", listed(&carriers)));
        let mut rows = vec![
            ("links".to_owned(), places.collect::<Vec<_>>().join(", ")),
            ("web".to_owned(), format!("https://{tcp}")),
            ("admin".to_owned(), format!("http://{admin}")),
            ("data".to_owned(), self.data.root().display().to_string()),
        ];
        rows.extend(self.config.routes.iter().map(|route| (place(route), format!("-> {}", route.upstream))));
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
        let rows: Vec<_> = rows.iter().map(|(name, value)| format!("  {name:width$}  {value}")).collect();
        let commands: Vec<_> = self.commands().iter().map(|command| format!("  {command}")).collect();
        format!(
            "Ropeway is up as `{}`:\n\n{}\n\nTry in another terminal:\n\n{}\n\nCtrl-C stops it.",
            self.config.gateway.name,
            rows.join("\n"),
            commands.join("\n")
        )
    }

    /// Says it for programs.
    pub(super) fn object(&self) -> Value {
        let Addresses { tcp, tcp_more, udp, udp_more, admin } = self.addresses;
        let all = |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        let routes = self.config.routes.iter().map(|route| {
            json!({
                "host": route.host,
                "path_prefix": route.path_prefix,
                "upstream": route.upstream.to_string(),
            })
        });
        json!({
            "event": "up",
            "gateway": self.config.gateway.name,
            "tcp": tcp.to_string(),
            "tcp_more": all(tcp_more),
            "udp": udp.to_string(),
            "udp_more": all(udp_more),
            "admin": admin.to_string(),
            "data_dir": self.data.root().display().to_string(),
            "ca": self.ca(),
            "routes": routes.collect::<Vec<_>>(),
            "commands": self.commands(),
        })
    }

    /// Gives commands that work as they are written here.
    fn commands(&self) -> Vec<String> {
        let program = quoted(self.program);
        let flags = if self.data.is_default() {
            String::new()
        } else {
            format!(" --data-dir {}", quoted_path(self.data.root()))
        };
        let mut commands = Vec::new();
        if let Some(url) = self.config.routes.first().map(|route| self.url(route)) {
            commands.push(format!("{program} request{flags} {url}"));
            let trust = self.ca().map(|ca| format!(" --cacert {}", quoted(&ca))).unwrap_or_default();
            let address = reachable(self.addresses.tcp);
            commands.push(format!("curl{trust} --connect-to ::{address} {url}"));
        }
        commands.push(format!("{program} listen{flags}"));
        commands.push(format!("{program} push{flags} --to user:{DEVELOPMENT_USER} hello"));
        commands
    }

    fn ca(&self) -> Option<String> {
        self.config.tls.cert.is_none().then(|| self.data.ca_path().display().to_string())
    }

    /// Gives a URL that the route serves and the certificate covers.
    fn url(&self, route: &RouteConfig) -> String {
        let host = match route.host.strip_prefix("*.") {
            Some(parent) => format!("www.{parent}"),
            None if route.host == "*" => self.config.gateway.name.clone(),
            None => route.host.clone(),
        };
        format!("https://{host}{}", route.path_prefix)
    }
}

/// Gives an address to connect to: one that stands for every address of this machine is none.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn place(route: &RouteConfig) -> String {
    if route.path_prefix == "/" { route.host.clone() } else { format!("{}{}", route.host, route.path_prefix) }
}

/// Lists carriers in words.
fn listed(carriers: &[CarrierKind]) -> String {
    let names: Vec<_> = carriers.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// Writes a word so that a shell reads it as one.
fn quoted(word: &str) -> String {
    let is_plain =
        |c: char| c.is_alphanumeric() || matches!(c, '.' | '/' | '_' | '-' | ':' | '=' | '@' | '%' | '+' | ',');
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Addresses {
        let address = |text: &str| text.parse().expect("an address");
        Addresses {
            tcp: address("0.0.0.0:7443"),
            tcp_more: vec![address("0.0.0.0:80"), address("0.0.0.0:7444")],
            udp: address("0.0.0.0:7444"),
            udp_more: vec![address("0.0.0.0:7445")],
            admin: address("127.0.0.1:7480"),
        }
    }

    fn config(host: &str, path_prefix: &str) -> Config {
        let mut route = RouteConfig::new(host, "http://127.0.0.1:8000".parse().expect("an upstream"));
        path_prefix.clone_into(&mut route.path_prefix);
        Config { routes: vec![route], ..Config::default() }
    }

    fn commands(config: &Config, folder: Option<&str>) -> Vec<String> {
        let data = DataDir::new(folder.map(Path::new));
        Announcement { config, addresses: &addresses(), data: &data, program: "ropeway" }.commands()
    }

    #[test]
    fn the_commands_name_the_first_service_and_a_folder_that_is_not_the_usual_one() {
        assert_eq!(
            commands(&config("api.test", "/v1"), None),
            [
                "ropeway request https://api.test/v1",
                "curl --cacert ropeway-data/ca.pem --connect-to ::127.0.0.1:7443 https://api.test/v1",
                "ropeway listen",
                "ropeway push --to user:dev hello",
            ]
        );
        assert_eq!(
            commands(&config("*.shop.test", "/"), Some("/tmp/it's here"))[..2],
            [
                r"ropeway request --data-dir '/tmp/it'\''s here' https://www.shop.test/",
                r"curl --cacert '/tmp/it'\''s here/ca.pem' --connect-to ::127.0.0.1:7443 https://www.shop.test/",
            ]
        );
        assert_eq!(commands(&config("*", "/"), Some("./ropeway-data"))[0], "ropeway request https://localhost/");
    }

    #[test]
    fn a_certificate_of_ones_own_needs_no_authority() {
        let mut config = config("api.test", "/");
        config.tls.cert = Some("gateway.pem".into());
        assert!(commands(&config, None)[1].starts_with("curl --connect-to"));
    }

    #[test]
    fn people_and_programs_are_told_the_same() {
        let config = config("api.test", "/v1");
        let data = DataDir::new(None);
        let announcement = Announcement { config: &config, addresses: &addresses(), data: &data, program: "ropeway" };
        let text = announcement.text();
        let links = "0.0.0.0:7445 by quic, 0.0.0.0:7443 by tls and ws, 0.0.0.0:80 by tls and ws, 0.0.0.0:7444 by quic, tls and ws";
        for part in [links, "api.test/v1  -> http://127.0.0.1:8000"] {
            assert!(text.contains(part), "{text}");
        }
        let object = announcement.object();
        assert_eq!((&object["udp"], &object["ca"]), (&json!("0.0.0.0:7444"), &json!("ropeway-data/ca.pem")));
        assert_eq!(object["tcp_more"], json!(["0.0.0.0:80", "0.0.0.0:7444"]));
        assert_eq!(object["routes"][0]["path_prefix"], "/v1");
    }
}
