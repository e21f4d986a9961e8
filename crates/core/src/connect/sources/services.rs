//! What HTTPS records say of hosts (RFC 9460): at which port HTTP/3 is. Nobody waits for one.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use super::{
    Answer, Question, Server, Sources, SourcesOutput,
    ask::Pending,
    names::{NAME_BYTES_MAX, STALE_MAX, TTL_MAX, TTL_MIN, is_localhost, normalised},
};
use crate::Time;

/// What records say, by host and port of the URL.
#[derive(Debug, Default)]
pub(super) struct Services {
    pub(super) known: BTreeMap<(String, u16), Known>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    h3_port: Option<u16>,
    /// When a server said so.
    at: Time,
    /// Until when nobody is asked again.
    until: Time,
}

impl Services {
    pub(super) fn handle_network_changed(&mut self, now: Time) {
        for known in self.known.values_mut() {
            known.until = known.until.min(now);
        }
    }

    /// Keeps an answer, the one that was had longest ago going where there is no room.
    fn insert(&mut self, key: (String, u16), known: Known) {
        if self.known.len() >= SERVICES_MAX && !self.known.contains_key(&key) {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.at).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(key, known);
    }
}

impl Sources {
    /// Returns the UDP port at which a host has HTTP/3 as its HTTPS record has it, for URLs with this port, and asks where that is not
    /// known or no longer fresh. Whoever asks next is told what comes of it; what is stale is told at once.
    pub fn h3_port(&mut self, host: &str, port: u16, now: Time) -> Option<u16> {
        let key = (normalised(host), port);
        if !has_records(&key.0) {
            return None;
        }
        let known = self.services.known.get(&key).copied();
        if known.is_none_or(|known| known.until <= now) {
            let question = Question::Service { name: key.0, port };
            if !self.asks.is_question_pending(&question) {
                self.ask_for_service(question, None, now);
            }
        }
        known.filter(|known| known.until > now || now.since(known.at) <= STALE_MAX)?.h3_port
    }

    /// Takes what came of a question. That a server does not answer it says nothing of the server: many know no such type.
    pub(super) fn handle_service_answer(&mut self, pending: &Pending, answer: &Answer, now: Time) {
        let Question::Service { name, port } = &pending.question else { return };
        let key = (name.clone(), *port);
        let known = match answer {
            Answer::NoName => Known { h3_port: None, at: now, until: now + NOTHING_FOR },
            Answer::Service { h3_port, ttl } => {
                Known { h3_port: *h3_port, at: now, until: now + (*ttl).clamp(TTL_MIN, TTL_MAX) }
            }
            Answer::Addresses { .. } | Answer::Failed(_) | Answer::List(_) | Answer::NotModified => {
                if self.ask_for_service(pending.question.clone(), Some(pending.server), now) {
                    return;
                }
                let before = self.services.known.get(&key).copied();
                let before = before.unwrap_or(Known { h3_port: None, at: now, until: now });
                Known { until: now + NOTHING_FOR, ..before }
            }
        };
        self.services.insert(key, known);
    }

    /// Asks the first server that may be asked, after the one that failed.
    fn ask_for_service(&mut self, question: Question, failed: Option<Server>, now: Time) -> bool {
        let doh = self.config.doh.iter().map(|address| Server::Doh(*address));
        let all = std::iter::once(Server::System).chain(doh);
        let mut left = all.skip_while(|server| failed.is_some_and(|failed| *server != failed));
        if failed.is_some() {
            left.next();
        }
        let Some(server) = left.find(|server| self.servers.is_free(*server, now)) else { return false };
        let Some(ask) = self.asks.begin(server, question.clone(), now) else { return false };
        self.outputs.push(SourcesOutput::Ask { ask, server, question });
        true
    }
}

/// Says whether name servers may have records of a host: not of addresses, of this machine (RFC 6761), of the neighbourhood (RFC 6762), or
/// of names that the system completes.
fn has_records(name: &str) -> bool {
    let is_own = is_localhost(name) || !name.contains('.') || name.ends_with(".local");
    !is_own && name.len() <= NAME_BYTES_MAX && name.trim_matches(['[', ']']).parse::<IpAddr>().is_err()
}

/// How long nobody is asked again for a record that there is not, or that could not be had. 5 min, the longest that RFC 9520 section 3.2 lets
/// failures be kept.
const NOTHING_FOR: Duration = Duration::from_secs(300);

/// Records that are remembered. 256, as many as names are.
const SERVICES_MAX: usize = 256;
