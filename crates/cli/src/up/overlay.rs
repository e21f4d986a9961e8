//! What the command line says of the configuration, laid over what the file says, at the start and at every reload.

use std::net::SocketAddr;
use std::path::PathBuf;

use ropeway_gateway::config::{Builtin, Config, KeySource, RouteConfig, TicketKey, Upstream};
use ropeway_gateway::tickets::TicketIssuer;

use crate::args::{Global, UpArgs};
use crate::error::CommandError;

/// What the command line says of the configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    data_dir: Option<PathBuf>,
    log: Option<String>,
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    upstreams: Vec<RouteConfig>,
    /// The development issuer, for a configuration that names none.
    issuer: Option<TicketKey>,
}

impl Overlay {
    /// Takes it from the arguments.
    pub(super) fn new(args: &UpArgs, global: &Global) -> Self {
        Self {
            data_dir: global.data_dir.clone(),
            log: global.log.clone(),
            listen: args.listen,
            admin: args.admin,
            upstreams: args.upstreams.clone(),
            issuer: None,
        }
    }

    /// Adds the development issuer, for a configuration that names none.
    pub(super) fn set_issuer(&mut self, issuer: &TicketIssuer) {
        let public_key = KeySource::Raw(issuer.public_key());
        self.issuer = Some(TicketKey { kid: issuer.kid().to_owned(), public_key });
    }

    /// Lays it over a configuration. One without any route gets the demo service.
    pub(super) fn apply(&self, config: &mut Config) {
        if let Some(folder) = &self.data_dir {
            config.gateway.data_dir.clone_from(folder);
        }
        if let Some(filter) = &self.log {
            config.log.filter.clone_from(filter);
        }
        if let Some(address) = self.listen {
            config.gateway.tcp_listen = address;
            config.gateway.udp_listen = address;
        }
        if let Some(address) = self.admin {
            config.admin.listen = address;
        }
        for route in &self.upstreams {
            config.set_route(route.clone());
        }
        if config.routes.is_empty() {
            config.set_route(RouteConfig::new(DEMO_HOST, Upstream::Builtin(Builtin::Demo)));
        }
        if config.tickets.keys.is_empty() {
            config.tickets.keys.extend(self.issuer.clone());
        }
    }

    /// Refuses what no file may say either.
    pub(super) fn check(&self, config: &Config) -> Result<(), CommandError> {
        let (admin, gateway) = (config.admin.listen, &config.gateway);
        if admin.port() != 0 && (admin == gateway.tcp_listen || gateway.tcp_listen_more.contains(&admin)) {
            let message = format!(
                "the admin API and the gateway have the same address {}; choose another with --admin or --listen",
                config.admin.listen
            );
            return Err(CommandError::Usage(message));
        }
        let twice = (1..self.upstreams.len())
            .find(|place| self.upstreams[..*place].iter().any(|known| known.same_place(&self.upstreams[*place])));
        if let Some(place) = twice {
            let host = &self.upstreams[place].host;
            return Err(CommandError::Usage(format!("--upstream names {host} twice; a host has one upstream")));
        }
        Ok(())
    }
}

/// Host of the demo service; RFC 6761 section 6.2 keeps `.test` for such.
const DEMO_HOST: &str = "demo.test";

#[cfg(test)]
mod tests {
    use super::*;

    fn route(host: &str, upstream: &str) -> RouteConfig {
        RouteConfig::new(host, upstream.parse().expect("an upstream"))
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let text = "[gateway]\ntcp_listen = \"127.0.0.1:1\"\n[[route]]\nhost = \"api.test\"\nupstream = \"http://a\"\n\
                    [[route]]\nhost = \"web.test\"\nupstream = \"http://b\"\n";
        let mut config = Config::parse(text, "ropeway.toml".as_ref()).expect("good");
        let overlay = Overlay {
            data_dir: Some("elsewhere".into()),
            log: Some("debug".to_owned()),
            listen: Some("127.0.0.1:2".parse().expect("an address")),
            upstreams: vec![route("api.test", "http://c"), route("new.test", "http://d")],
            ..Overlay::default()
        };
        overlay.apply(&mut config);
        assert_eq!((config.gateway.tcp_listen.port(), config.gateway.udp_listen.port()), (2, 2));
        assert_eq!((config.gateway.data_dir.to_str(), config.log.filter.as_str()), (Some("elsewhere"), "debug"));
        let routes: Vec<_> = config.routes.iter().map(|route| format!("{}={}", route.host, route.upstream)).collect();
        assert_eq!(routes, ["api.test=http://c", "web.test=http://b", "new.test=http://d"]);
    }

    #[test]
    fn the_demo_service_fills_an_empty_configuration_only() {
        let mut config = Config::default();
        Overlay::default().apply(&mut config);
        assert_eq!(config.routes, [route("demo.test", "builtin:demo")]);

        let mut config = Config::default();
        Overlay { upstreams: vec![route("api.test", "http://a")], ..Overlay::default() }.apply(&mut config);
        assert_eq!(config.routes, [route("api.test", "http://a")]);
    }

    #[test]
    fn a_host_with_two_upstreams_is_refused() {
        let upstreams = vec![route("api.test", "http://a"), route("api.test", "http://b")];
        let error = Overlay { upstreams, ..Overlay::default() }.check(&Config::default()).expect_err("twice");
        assert!(error.to_string().contains("api.test twice"), "{error}");
    }

    #[test]
    fn the_development_issuer_stands_beside_no_other() {
        let mut overlay = Overlay::default();
        overlay.set_issuer(&TicketIssuer::generate("dev").expect("a key"));
        let mut config = Config::default();
        overlay.apply(&mut config);
        assert_eq!(config.tickets.keys.len(), 1);

        let mut config = Config::default();
        config.tickets.keys.push(TicketKey::default());
        overlay.apply(&mut config);
        assert_eq!(config.tickets.keys, [TicketKey::default()]);
    }
}
