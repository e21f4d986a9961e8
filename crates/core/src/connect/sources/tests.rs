//! The machine against sources that answer, lie, fall silent or come late, in virtual time.

mod lists;
mod names;
mod services;

use std::net::SocketAddr;

use ed25519_dalek::{Signer, SigningKey};

use super::*;
use crate::{
    CarrierKind,
    wire::list::{AccessList, AccessPoint, Host, ListKey, Unit, UnitMap, UnitRange},
};

const WALL_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 86_400_000;

/// A machine with both of its clocks, and whoever it asks.
struct Stage {
    sources: Sources,
    now: Time,
    wall_ms: u64,
    asked: Vec<(AskId, Server, Question)>,
    stored: Vec<Bytes>,
    warnings: Vec<SourcesWarning>,
}

impl Stage {
    fn new(config: SourcesConfig) -> Self {
        let sources = Sources::new(config, 1, Time::ZERO);
        let mut stage = Self {
            sources,
            now: Time::ZERO,
            wall_ms: WALL_MS,
            asked: Vec::new(),
            stored: Vec::new(),
            warnings: Vec::new(),
        };
        stage.tick();
        stage
    }

    fn drain(&mut self) {
        while let Some(output) = self.sources.poll_output() {
            match output {
                SourcesOutput::Ask { ask, server, question } => self.asked.push((ask, server, question)),
                SourcesOutput::Changed => {}
                SourcesOutput::Store(document) => self.stored.push(document),
                SourcesOutput::Warn(warning) => self.warnings.push(warning),
            }
        }
    }

    fn tick(&mut self) {
        self.sources.handle_timeout(self.now, self.wall_ms);
        self.drain();
    }

    /// Lets both clocks run, waking the machine whenever it wants.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((at, why)) = self.sources.poll_timeout().filter(|(at, _)| *at <= end) {
            assert!(at > self.now || self.now == Time::ZERO, "{why}: it was woken for nothing");
            self.wall_ms += u64::try_from(at.since(self.now).as_millis()).unwrap();
            self.now = at.max(self.now);
            self.tick();
            assert!(self.sources.poll_timeout().is_none_or(|(next, _)| next > at), "{why}: it fires for ever");
        }
        self.wall_ms += u64::try_from(end.since(self.now).as_millis()).unwrap();
        self.now = end;
    }

    fn resolve(&mut self, host: &str) -> Resolution {
        let resolution = self.sources.resolve(host, self.now, self.wall_ms);
        self.drain();
        resolution
    }

    /// Returns the addresses of a host, if it is resolved.
    fn ready(&mut self, host: &str) -> Option<Vec<String>> {
        match self.resolve(host) {
            Resolution::Ready(resolved) => Some(resolved.iter().map(|resolved| resolved.address.to_string()).collect()),
            Resolution::Failed | Resolution::Wait => None,
        }
    }

    fn answer(&mut self, ask: AskId, answer: Answer) {
        self.asked.retain(|(asked, ..)| *asked != ask);
        self.sources.handle_answer(ask, answer, self.now, self.wall_ms);
        self.drain();
    }

    /// Answers the last question that this server was asked for a family.
    fn say(&mut self, server: Server, family: Family, answer: Answer) {
        let fits = |question: &Question| matches!(question, Question::Host { family: asked, .. } if *asked == family);
        let found = self.asked.iter().rev().find(|(_, asked, question)| *asked == server && fits(question));
        let ask = found.unwrap_or_else(|| panic!("{server:?} was not asked for {family:?}: {:?}", self.asked)).0;
        self.answer(ask, answer);
    }

    /// Answers the first question for a list.
    fn say_list(&mut self, answer: Answer) {
        let found = self.asked.iter().find(|(_, _, question)| matches!(question, Question::List { .. }));
        let ask = found.expect("somebody was asked for a list").0;
        self.answer(ask, answer);
    }

    /// Whom the machine asks for a list.
    fn asked_for_list(&self) -> Vec<SocketAddr> {
        let lists = self.asked.iter().filter(|(_, _, question)| matches!(question, Question::List { .. }));
        lists
            .map(|(_, server, _)| match server {
                Server::Dispatch(address) => *address,
                Server::Doh(_) | Server::System => panic!("{server:?} has no lists"),
            })
            .collect()
    }

    /// Whom the machine asks about hosts.
    fn asked_for_hosts(&self) -> Vec<(Server, Family)> {
        let hosts = self.asked.iter().filter_map(|(_, server, question)| match question {
            Question::Host { family, .. } => Some((*server, *family)),
            Question::List { .. } | Question::Service { .. } => None,
        });
        hosts.collect()
    }

    fn push(&mut self, list: &AccessList) {
        self.sources.handle_list(&sealed(list), self.now, self.wall_ms);
        self.drain();
    }
}

fn key() -> SigningKey {
    SigningKey::from_bytes(&[1; 32])
}

fn sealed(list: &AccessList) -> Bytes {
    list.seal("k", &|message| key().sign(message).to_bytes())
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn config() -> SourcesConfig {
    SourcesConfig {
        list_keys: vec![ListKey { id: "k".into(), public_key: key().verifying_key().to_bytes() }],
        seeds: vec![Seed {
            address: address("9.0.0.1:443"),
            carriers: vec![CarrierKind::Tls],
            gateway: None,
            unit: Some("north".into()),
        }],
        dispatch: vec![
            DispatchSeed { address: address("9.0.0.2:443"), unit: Some("north".into()) },
            DispatchSeed { address: address("9.1.0.2:443"), unit: Some("south".into()) },
        ],
        doh: vec![address("9.9.9.9:443")],
        public_hosts: vec!["*.shop.test".into()],
        ..SourcesConfig::default()
    }
}

/// Three units with two access points each; users belong to `south`.
fn list(epoch_ms: u64) -> AccessList {
    let unit = |number: u8, name: &str| Unit {
        name: name.into(),
        access_points: (1..=2)
            .map(|point| AccessPoint {
                serves_pipe: true,
                serves_plain: point == 1,
                pipe_name: format!("{name}-{point}"),
                gateway: format!("{name}.gw.test"),
                ..AccessPoint::new(
                    SocketAddr::from(([20, number, 0, point], 443)),
                    [CarrierKind::Quic, CarrierKind::Tls],
                )
            })
            .collect(),
        dispatch: vec![SocketAddr::from(([20, number, 1, 1], 443)), SocketAddr::from(([20, number, 1, 2], 443))],
    };
    AccessList {
        epoch_ms,
        expires_ms: epoch_ms + DAY_MS,
        units: vec![unit(0, "north"), unit(1, "south"), unit(2, "west")],
        hosts: vec![Host {
            name: "api.test".into(),
            addresses: vec![address("20.0.0.1:443").into(), address("20.1.0.1:443").into()],
            speaks_h3: true,
            ..Host::default()
        }],
        unit_map: UnitMap {
            ranges: vec![UnitRange { first: 0, last: u16::MAX, unit: "south".into() }],
            ..UnitMap::default()
        },
        ..AccessList::default()
    }
}

fn found(addresses: &[&str]) -> Answer {
    let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    Answer::Addresses { addresses, own: false, ttl: Duration::from_secs(60), signed: false }
}

fn signed(addresses: &[&str]) -> Answer {
    let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    Answer::Addresses { addresses, own: false, ttl: Duration::from_secs(60), signed: true }
}
