//! From an [`AccessList`] to the bytes that are signed.

use bytes::Bytes;
use prost::Message as _;

use super::{
    AccessList, AccessPoint, HostAddress, UnitMap,
    message::{self, Protocol},
};
use crate::CarrierKind;

impl AccessList {
    /// Writes the bytes that are to be signed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let list = message::AccessList {
            epoch_ms: self.epoch_ms,
            expires_ms: self.expires_ms,
            units: self.units.iter().map(unit).collect(),
            hosts: self.hosts.iter().map(host).collect(),
            bans: self
                .bans
                .iter()
                .map(|ban| message::Ban { address: ban.address.encode(), until_ms: ban.until_ms })
                .collect(),
            unit_map: (self.unit_map != UnitMap::default()).then(|| unit_map(&self.unit_map)),
            pipe_keys: self.pipe_keys.iter().map(pipe_key).collect(),
            plain_keys: self.plain_keys.iter().map(plain_key).collect(),
            policy: Some(self.policy.to_message()),
        };
        list.encode_to_vec()
    }
}

/// Joins the bytes of a list and their signature into the document that travels.
#[must_use]
pub(super) fn signed(list: Vec<u8>, signature: &[u8; 64], key_id: &str) -> Bytes {
    let signature = Bytes::copy_from_slice(signature);
    message::SignedList { list: list.into(), signature, key_id: key_id.into() }.encode_to_vec().into()
}

impl HostAddress {
    /// Writes the address as the list carries it.
    fn encode(self) -> Bytes {
        let mut bytes = match self.ip {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        bytes.extend(self.port.into_iter().flat_map(u16::to_be_bytes));
        bytes.into()
    }
}

fn unit(unit: &super::Unit) -> message::Unit {
    message::Unit {
        name: unit.name.clone(),
        access_points: unit.access_points.iter().map(access_point).collect(),
        dispatch: unit.dispatch.iter().map(|address| HostAddress::from(*address).encode()).collect(),
    }
}

fn access_point(point: &AccessPoint) -> message::AccessPoint {
    let carriers = point.carriers.iter().map(|carrier| match carrier {
        CarrierKind::Quic => Protocol::Quic,
        CarrierKind::Tls => Protocol::Tls,
        CarrierKind::Ws => Protocol::Ws,
    });
    let services =
        [(point.serves_h3, Protocol::H3), (point.serves_pipe, Protocol::Pipe), (point.serves_plain, Protocol::Plain)];
    let services = services.into_iter().filter(|(serves, _)| *serves).map(|(_, protocol)| protocol);
    message::AccessPoint {
        address: HostAddress::from(point.address).encode(),
        protocols: carriers.chain(services).map(i32::from).collect(),
        gateway: point.gateway.clone(),
        operator: point.operator.clone(),
        region: point.region.clone(),
        pipe_name: point.pipe_name.clone(),
    }
}

fn host(host: &super::Host) -> message::Host {
    message::Host {
        name: host.name.clone(),
        addresses: host.addresses.iter().map(|address| address.encode()).collect(),
        speaks_h3: host.speaks_h3,
        route_key: host.route_key.clone(),
        private: host.private,
    }
}

fn unit_map(map: &UnitMap) -> message::UnitMap {
    let range = |range: &super::UnitRange| message::UnitRange {
        first: range.first.into(),
        last: range.last.into(),
        unit: range.unit.clone(),
    };
    let overridden = |(hash, unit): (&u64, &String)| message::UnitOverride { user_hash: *hash, unit: unit.clone() };
    message::UnitMap {
        epoch_ms: map.epoch_ms,
        ranges: map.ranges.iter().map(range).collect(),
        overrides: map.overrides.iter().map(overridden).collect(),
    }
}

fn pipe_key(key: &super::PipeKey) -> message::PipeKey {
    message::PipeKey {
        key_id: key.key_id.into(),
        config: key.config.clone(),
        expires_ms: key.expires_ms,
        name: key.name.clone(),
    }
}

fn plain_key(key: &super::PlainKey) -> message::SigningKey {
    let public_key = Bytes::copy_from_slice(&key.public_key);
    message::SigningKey { key_id: key.key_id.clone(), public_key, expires_ms: key.expires_ms }
}
