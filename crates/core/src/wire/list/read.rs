//! From messages to an [`AccessList`] within bounds.

use std::net::{IpAddr, SocketAddr};

use prost::Message as _;

use super::{
    ACCESS_POINTS_MAX, AccessList, AccessPoint, BANS_MAX, Ban, DISPATCH_MAX, HOST_ADDRESSES_MAX, HOSTS_MAX, Host,
    HostAddress, KEY_CONFIG_BYTES_MAX, ListError, NAME_BYTES_MAX, OVERRIDES_MAX, PIPE_KEYS_MAX, PLAIN_KEYS_MAX,
    PipeKey, PlainKey, RANGES_MAX, UNITS_MAX, Unit, UnitMap, UnitRange,
    message::{self, Protocol},
};
use crate::{CarrierKind, policy::Policy};

impl AccessList {
    /// Reads the signed bytes of a list; whoever calls has checked the signature.
    ///
    /// Entries beyond the bounds are left out, and so are entries that make no sense: an address of another length, a name that is
    /// none.
    ///
    /// # Errors
    ///
    /// [`ListError::Malformed`] if it is no list, has no epoch, or expires before it was issued.
    pub fn decode(bytes: &[u8]) -> Result<Self, ListError> {
        let list = message::AccessList::decode(bytes).map_err(|_| ListError::Malformed)?;
        if list.epoch_ms == 0 || list.expires_ms < list.epoch_ms {
            return Err(ListError::Malformed);
        }
        let mut policy = Policy::from_message(list.policy.unwrap_or_default());
        if policy.epoch_ms == 0 {
            policy.epoch_ms = list.epoch_ms;
        }
        Ok(Self {
            epoch_ms: list.epoch_ms,
            expires_ms: list.expires_ms,
            units: list.units.into_iter().filter_map(unit).take(UNITS_MAX).collect(),
            hosts: list.hosts.into_iter().filter_map(host).take(HOSTS_MAX).collect(),
            bans: list.bans.iter().filter_map(ban).take(BANS_MAX).collect(),
            unit_map: list.unit_map.map(unit_map).unwrap_or_default(),
            pipe_keys: list.pipe_keys.into_iter().filter_map(pipe_key).take(PIPE_KEYS_MAX).collect(),
            plain_keys: list.plain_keys.into_iter().filter_map(plain_key).take(PLAIN_KEYS_MAX).collect(),
            policy,
        })
    }
}

fn unit(unit: message::Unit) -> Option<Unit> {
    let name = name(unit.name)?;
    Some(Unit {
        name,
        access_points: unit.access_points.into_iter().filter_map(access_point).take(ACCESS_POINTS_MAX).collect(),
        dispatch: unit.dispatch.iter().filter_map(|bytes| socket_address(bytes)).take(DISPATCH_MAX).collect(),
    })
}

fn access_point(point: message::AccessPoint) -> Option<AccessPoint> {
    let serves = |protocol: Protocol| point.protocols.contains(&i32::from(protocol));
    let carriers =
        [(Protocol::Quic, CarrierKind::Quic), (Protocol::Tls, CarrierKind::Tls), (Protocol::Ws, CarrierKind::Ws)];
    Some(AccessPoint {
        address: socket_address(&point.address)?,
        carriers: carriers.into_iter().filter(|(protocol, _)| serves(*protocol)).map(|(_, carrier)| carrier).collect(),
        serves_h3: serves(Protocol::H3),
        serves_pipe: serves(Protocol::Pipe),
        serves_plain: serves(Protocol::Plain),
        gateway: clip(point.gateway),
        operator: clip(point.operator),
        region: clip(point.region),
        pipe_name: clip(point.pipe_name),
    })
}

fn host(host: message::Host) -> Option<Host> {
    let name = name(host.name)?.to_ascii_lowercase();
    Some(Host {
        name,
        addresses: host.addresses.iter().filter_map(|bytes| host_address(bytes)).take(HOST_ADDRESSES_MAX).collect(),
        speaks_h3: host.speaks_h3,
        route_key: clip(host.route_key),
        private: host.private,
    })
}

fn ban(ban: &message::Ban) -> Option<Ban> {
    Some(Ban { address: host_address(&ban.address)?, until_ms: ban.until_ms })
}

fn unit_map(map: message::UnitMap) -> UnitMap {
    let ranges = map.ranges.into_iter().filter_map(|range| {
        let (first, last) = (u16::try_from(range.first).ok()?, u16::try_from(range.last).ok()?);
        Some(UnitRange { first, last, unit: name(range.unit)? })
    });
    let overrides = map.overrides.into_iter().filter_map(|entry| Some((entry.user_hash, name(entry.unit)?)));
    UnitMap {
        epoch_ms: map.epoch_ms,
        ranges: ranges.take(RANGES_MAX).collect(),
        overrides: overrides.take(OVERRIDES_MAX).collect(),
    }
}

fn pipe_key(key: message::PipeKey) -> Option<PipeKey> {
    let key_id = u8::try_from(key.key_id).ok()?;
    let fits = !key.config.is_empty() && key.config.len() <= KEY_CONFIG_BYTES_MAX;
    let name = name(key.name)?;
    fits.then_some(PipeKey { key_id, config: key.config, expires_ms: key.expires_ms, name })
}

fn plain_key(key: message::SigningKey) -> Option<PlainKey> {
    let public_key = key.public_key.as_ref().try_into().ok()?;
    Some(PlainKey { key_id: name(key.key_id)?, public_key, expires_ms: key.expires_ms })
}

fn name(name: String) -> Option<String> {
    (!name.is_empty() && name.len() <= NAME_BYTES_MAX).then_some(name)
}

/// Takes a text that may be empty; one that is too long counts as empty.
fn clip(text: String) -> String {
    if text.len() <= NAME_BYTES_MAX { text } else { String::new() }
}

fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let address = host_address(bytes)?;
    Some(SocketAddr::new(address.ip, address.port?))
}

fn host_address(bytes: &[u8]) -> Option<HostAddress> {
    let (ip, port) = match bytes.len() {
        4 | 16 => (bytes, None),
        6 | 18 => {
            let (ip, port) = bytes.split_at(bytes.len() - 2);
            (ip, Some(u16::from_be_bytes([port[0], port[1]])))
        }
        _ => return None,
    };
    let ip = match ip.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?).to_canonical(),
    };
    let usable = !ip.is_unspecified() && !ip.is_multicast() && port != Some(0);
    usable.then_some(HostAddress { ip, port })
}
